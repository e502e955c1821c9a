// Losses: the mean of something pointwise. And what has two results of each element.
#include <utility>

#include "decomp/table.h"
#include "ir/arguments.h"

namespace graft::decomp {
namespace {

using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

enum Reduction : int64_t { reduction_none = 0, reduction_mean = 1, reduction_sum = 2 };

Dims all_dims(const Value* x) {
  Dims dims;
  for (size_t i = 0; i < x->type().sizes.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  return dims;
}

Values reduced(Builder& b, const Node& n, Value* losses) {
  const auto dtype = n.output().type().dtype;
  switch (ir::int_of(n, "reduction").value_or(reduction_mean)) {
    case reduction_mean:
      return {b.to(b.mean(losses, all_dims(losses), false), dtype)};
    case reduction_sum:
      return {b.to(b.sum(losses, all_dims(losses), false), dtype)};
    default:
      return {b.to(losses, dtype)};
  }
}

/// Tensors of one shape that have elements.
bool compares(const Node& n) {
  const auto& type = ir::value_of(n, "self")->type();
  return type.sizes == ir::value_of(n, "target")->type().sizes && type.numel() > 0 &&
         ir::is_floating(n.output().type().dtype);
}
Value* argument(Builder& b, const Node& n, const char* name) {
  return b.to(ir::value_of(n, name), wide(n.output().type().dtype));
}
Value* difference(Builder& b, const Node& n) {
  return b.sub(argument(b, n, "self"), argument(b, n, "target"));
}

Values mse_loss(Builder& b, const Node& n) {
  if (!compares(n)) return {};
  auto* d = difference(b, n);
  return reduced(b, n, b.mul(d, d));
}

/// A square near zero, straight from `near` on.
Values huber_loss(Builder& b, const Node& n) {
  const double delta = ir::number_of(n, "delta").value_or(1);
  if (!compares(n)) return {};
  auto* d = b.unary("aten::abs", difference(b, n));
  auto* straight = b.mul(b.add(d, -0.5 * delta), delta);
  return reduced(b, n,
                 b.where(b.compare_with("aten::lt.Scalar", d, delta), b.mul(b.mul(d, d), 0.5), straight));
}

Values smooth_l1_loss(Builder& b, const Node& n) {
  const double beta = ir::number_of(n, "beta").value_or(1);
  if (!compares(n) || beta <= 0) return {};
  auto* d = b.unary("aten::abs", difference(b, n));
  auto* square = b.mul(b.mul(d, d), 0.5 / beta);
  return reduced(b, n, b.where(b.compare_with("aten::lt.Scalar", d, beta), square, b.add(d, -0.5 * beta)));
}

/// min(x, 0) - log(1 + exp(-|x|)), and that exponential.
std::pair<Value*, Value*> log_sigmoid_of(Builder& b, Value* x) {
  auto* z = b.exp(b.neg(b.unary("aten::abs", x)));
  auto* low = b.binary("aten::minimum", x, b.full({}, 0, x->type().dtype, x->type().device));
  return {b.sub(low, b.unary("aten::log1p", z)), z};
}

/// The second result is kept for ATen's backward pass on a CPU, which has it empty elsewhere.
Values log_sigmoid(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  const auto dtype = n.output(0).type().dtype;
  if (x->type().numel() == 0) return {};
  const auto [y, z] = log_sigmoid_of(b, b.to(x, wide(dtype)));
  const auto& kept = n.output(1).type();
  return {b.to(y, dtype), kept.numel() > 0 ? b.to(z, dtype) : b.full(kept.sizes, 0, dtype, kept.device)};
}

/// (1 - t) * x - w * log(sigmoid(x)), where w is more than 1 for what counts more.
Values binary_cross_entropy_with_logits(Builder& b, const Node& n) {
  if (!compares(n)) return {};
  auto* x = argument(b, n, "self");
  auto* target = argument(b, n, "target");
  const auto rest = [&](Value* t) { return b.add(b.neg(t), 1.0); };
  auto* log_sigmoid = log_sigmoid_of(b, x).first;
  if (ir::value_of(n, "pos_weight")) {
    auto* more = b.mul(target, b.add(argument(b, n, "pos_weight"), -1.0));
    log_sigmoid = b.mul(b.add(more, 1.0), log_sigmoid);
  }
  auto* losses = b.sub(b.mul(rest(target), x), log_sigmoid);
  if (ir::value_of(n, "weight")) losses = b.mul(losses, argument(b, n, "weight"));
  if (losses->type().sizes != x->type().sizes) return {};
  return reduced(b, n, losses);
}

Values mse_loss_backward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  auto* target = ir::value_of(n, "target");
  const auto dtype = n.output().type().dtype;
  if (x->type().sizes != target->type().sizes || x->type().numel() == 0) return {};
  const double scale = ir::int_of(n, "reduction").value_or(reduction_mean) == reduction_mean
                           ? 2.0 / static_cast<double>(x->type().numel())
                           : 2.0;
  auto* d = b.mul(b.sub(b.to(x, wide(dtype)), b.to(target, wide(dtype))), scale);
  return {b.to(b.mul(d, b.to(ir::value_of(n, "grad_output"), wide(dtype))), dtype)};
}

/// -x[i, target[i], ...], weighted by class, averaged over the targets that are not ignored.
Values nll_loss_forward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  auto* target = ir::value_of(n, "target");
  auto* weight = ir::value_of(n, "weight");
  if (x->type().sizes.size() < 2 || x->type().numel() == 0 || target->type().dtype != ir::DType::i64)
    return {};
  const auto dtype = n.output(0).type().dtype;
  const auto& sizes = target->type().sizes;
  auto* counts = b.compare_with("aten::ne.Scalar", target, ir::int_of(n, "ignore_index").value_or(-100));
  // An ignored target need not be a class: it reads class 0, and what was read is dropped.
  auto* safe = b.where(counts, target, b.full(sizes, 0, ir::DType::i64, x->type().device));
  Dims one_class = x->type().sizes;
  one_class[1] = 1;
  auto* picked = b.call("aten::gather",
                        {{"self", x}, {"dim", ir::Attribute(int64_t{1})}, {"index", b.view(safe, one_class)}},
                        ir::contiguous(x->type().dtype, one_class, x->type().device));
  auto* losses = b.neg(b.to(b.view(picked, sizes), wide(dtype)));
  auto* shares = b.to(counts, wide(dtype));
  if (weight) {
    const Dims flat{target->type().numel()};
    auto* its = b.call("aten::index_select",
                       {{"self", weight}, {"dim", ir::Attribute(int64_t{0})}, {"index", b.view(safe, flat)}},
                       ir::contiguous(weight->type().dtype, flat, x->type().device));
    auto* of_target = b.view(b.to(its, wide(dtype)), sizes);
    losses = b.mul(losses, of_target);
    shares = b.where(counts, of_target, b.full(sizes, 0, wide(dtype), x->type().device));
  }
  losses = b.where(counts, losses, b.full(sizes, 0, wide(dtype), x->type().device));
  const auto reduction = ir::int_of(n, "reduction").value_or(reduction_mean);
  if (reduction == reduction_none) return {b.to(losses, dtype), b.full({}, 0, dtype, x->type().device)};
  auto* total = b.sum(shares, all_dims(target), false);
  auto* sum = b.sum(losses, all_dims(target), false);
  return {b.to(reduction == reduction_mean ? b.div(sum, total) : sum, dtype), b.to(total, dtype)};
}

/// Of max(x, 0) + weight * min(x, 0).
Values prelu_backward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  const auto dtype = n.output(0).type().dtype;
  if (x->type().numel() == 0) return {};
  const auto wide_of = [&](const char* name) { return b.to(ir::value_of(n, name), wide(dtype)); };
  auto* g = wide_of("grad_output");
  auto* positive = b.compare_with("aten::gt.Scalar", x, int64_t{0});
  auto* zero = b.full({}, 0, wide(dtype), x->type().device);
  return {b.to(b.where(positive, g, b.mul(g, wide_of("weight"))), dtype),
          b.to(b.where(positive, zero, b.mul(g, wide_of("self"))), dtype)};
}

}  // namespace

void add_losses(Table& table) {
  table["aten::mse_loss"] = mse_loss;
  table["aten::mse_loss_backward"] = mse_loss_backward;
  table["aten::huber_loss"] = huber_loss;
  table["aten::smooth_l1_loss"] = smooth_l1_loss;
  table["aten::log_sigmoid_forward"] = log_sigmoid;
  table["aten::binary_cross_entropy_with_logits"] = binary_cross_entropy_with_logits;
  table["aten::nll_loss_forward"] = nll_loss_forward;
  table["aten::nll_loss2d_forward"] = nll_loss_forward;
  table["aten::_prelu_kernel_backward"] = prelu_backward;
}

}  // namespace graft::decomp
