// Losses: the mean of something pointwise.
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

Values mse_loss(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  auto* target = ir::value_of(n, "target");
  const auto dtype = n.output().type().dtype;
  if (x->type().sizes != target->type().sizes || x->type().numel() == 0) return {};
  auto* d = b.sub(b.to(x, wide(dtype)), b.to(target, wide(dtype)));
  auto* squares = b.mul(d, d);
  switch (ir::int_of(n, "reduction").value_or(reduction_mean)) {
    case reduction_mean:
      return {b.to(b.mean(squares, all_dims(x), false), dtype)};
    case reduction_sum:
      return {b.to(b.sum(squares, all_dims(x), false), dtype)};
    default:
      return {b.to(squares, dtype)};
  }
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

/// -x[i, target[i]], averaged over the targets that are not ignored.
Values nll_loss_forward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "self");
  auto* target = ir::value_of(n, "target");
  if (ir::value_of(n, "weight") || x->type().sizes.size() != 2 || x->type().numel() == 0 ||
      target->type().dtype != ir::DType::i64)
    return {};
  const auto dtype = n.output(0).type().dtype;
  const int64_t rows = x->type().sizes[0];
  auto* counts = b.compare("aten::ne.Scalar", target, ir::int_of(n, "ignore_index").value_or(-100));
  // An ignored target need not be a class: it reads class 0, and what was read is dropped.
  auto* zero = b.full({rows}, 0, ir::DType::i64, x->type().device);
  auto* safe = b.where(counts, target, zero);
  auto type = ir::contiguous(x->type().dtype, {rows, 1}, x->type().device);
  auto* picked =
      b.call("aten::gather",
             {{"self", x}, {"dim", ir::Attribute(int64_t{1})}, {"index", b.view(safe, {rows, 1})}}, type);
  auto* losses = b.neg(b.to(b.view(picked, {rows}), wide(dtype)));
  losses = b.where(counts, losses, b.full({rows}, 0, wide(dtype), x->type().device));
  const auto reduction = ir::int_of(n, "reduction").value_or(reduction_mean);
  if (reduction == reduction_none) return {b.to(losses, dtype), b.full({}, 0, dtype, x->type().device)};
  auto* total = b.sum(b.to(counts, wide(dtype)), {0}, false);
  auto* sum = b.sum(losses, {0}, false);
  return {b.to(reduction == reduction_mean ? b.div(sum, total) : sum, dtype), b.to(total, dtype)};
}

}  // namespace

void add_losses(Table& table) {
  table["aten::mse_loss"] = mse_loss;
  table["aten::mse_loss_backward"] = mse_loss_backward;
  table["aten::nll_loss_forward"] = nll_loss_forward;
}

}  // namespace graft::decomp
