// Means, variances, norms and softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "decomp/table.h"
#include "ir/arguments.h"

namespace graft::decomp {
namespace {

using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

Value* self(const Node& n) { return ir::value_of(n, "self"); }
Dims dims_of(const Node& n, const Value* x) { return ir::reduced_dims(n, "dim", x->type().sizes.size()); }

int64_t count_of(const Value* x, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= x->type().sizes[static_cast<size_t>(d)];
  return count;
}

Values mean(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  if (x->type().numel() == 0 || !ir::is_floating(dtype)) return {};
  return {b.to(b.mean(b.to(x, wide(dtype)), dims_of(n, x), ir::bool_of(n, "keepdim", false)), dtype)};
}

/// In two passes: the sum of squares of small differences loses nothing.
Value* variance(Builder& b, const Node& n, Value* x, Value* mean_kept, const Dims& dims, bool keep) {
  auto* centred = b.sub(x, mean_kept);
  const double correction = ir::number_of(n, "correction").value_or(1);
  // None left is 0, as in torch: the result is infinite or no number.
  const double freedom = std::max(static_cast<double>(count_of(x, dims)) - correction, 0.0);
  auto* squares = b.sum(b.mul(centred, centred), dims, keep);
  return b.div(squares, freedom);
}

/// ATen's kernels compute variances in double precision: squares of large numbers do not overflow there.
Value* in_double(Builder& b, Value* x) { return b.to(x, ir::DType::f64); }

Values var(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  const auto dims = dims_of(n, x);
  if (x->type().numel() == 0 || count_of(x, dims) <= 1) return {};
  auto* w = in_double(b, x);
  return {b.to(variance(b, n, w, b.mean(w, dims), dims, ir::bool_of(n, "keepdim", false)), dtype)};
}

Values standard_deviation(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  const auto dims = dims_of(n, x);
  if (x->type().numel() == 0 || count_of(x, dims) <= 1) return {};
  auto* w = in_double(b, x);
  return {b.to(b.sqrt(variance(b, n, w, b.mean(w, dims), dims, ir::bool_of(n, "keepdim", false))), dtype)};
}

/// Of numbers that are some.
Values sum_of_numbers(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  if (x->type().numel() == 0 || !ir::is_floating(x->type().dtype) || !ir::is_floating(dtype)) return {};
  auto* w = b.to(b.to(x, dtype), wide(dtype));
  auto* numbers = b.where(b.is_nan(w), b.full({}, 0, wide(dtype), x->type().device), w);
  return {b.to(b.sum(numbers, dims_of(n, x), ir::bool_of(n, "keepdim", false)), dtype)};
}

Values count_nonzero(Builder& b, const Node& n) {
  auto* x = self(n);
  if (x->type().numel() == 0) return {};
  return {
      b.sum(b.to(b.compare_with("aten::ne.Scalar", x, int64_t{0}), ir::DType::i64), dims_of(n, x), false)};
}

Values least_and_most(Builder& b, const Node& n) {
  auto* x = self(n);
  if (x->type().numel() == 0) return {};
  const auto dims = dims_of(n, x);
  const bool keep = ir::bool_of(n, "keepdim", false);
  return {b.reduce("aten::amin", x, dims, keep), b.reduce("aten::amax", x, dims, keep)};
}

/// The variance, or its root, and the mean.
Values spread_and_mean(Builder& b, const Node& n, bool root) {
  auto* x = self(n);
  const auto dtype = n.output(0).type().dtype;
  const auto dims = dims_of(n, x);
  if (x->type().numel() == 0 || count_of(x, dims) <= 1) return {};
  const bool keep = ir::bool_of(n, "keepdim", false);
  auto* w = in_double(b, x);
  auto* kept = b.mean(w, dims);
  auto* v = variance(b, n, w, kept, dims, keep);
  return {b.to(root ? b.sqrt(v) : v, dtype), b.to(keep ? kept : b.mean(w, dims, false), dtype)};
}

Values var_mean(Builder& b, const Node& n) { return spread_and_mean(b, n, false); }
Values std_mean(Builder& b, const Node& n) { return spread_and_mean(b, n, true); }

Values softmax(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  if (x->type().numel() == 0 || x->type().sizes.empty()) return {};
  const Dims dims{ir::wrapped(*ir::int_of(n, "dim"), x->type().sizes.size())};
  auto* w = b.to(x, wide(dtype));
  auto* e = b.exp(b.sub(w, b.amax(w, dims)));
  // One division a row instead of one an element, for at most an ulp.
  return {b.to(b.mul(e, b.unary("aten::reciprocal", b.sum(e, dims))), dtype)};
}

Values log_softmax(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  if (x->type().numel() == 0 || x->type().sizes.empty()) return {};
  const Dims dims{ir::wrapped(*ir::int_of(n, "dim"), x->type().sizes.size())};
  auto* w = b.to(x, wide(dtype));
  auto* shifted = b.sub(w, b.amax(w, dims));
  return {b.to(b.sub(shifted, b.log(b.sum(b.exp(shifted), dims))), dtype)};
}

/// Without overflow: relative to the largest. Of infinities, the largest itself.
Values logsumexp(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  if (x->type().numel() == 0 || x->type().sizes.empty()) return {};
  const auto dims = dims_of(n, x);
  auto* w = b.to(x, wide(dtype));
  auto* largest = b.amax(w, dims);
  auto* endless = b.compare_with("aten::eq.Scalar", b.unary("aten::abs", largest),
                                 std::numeric_limits<double>::infinity());
  auto* from = b.where(endless, b.full({}, 0, wide(dtype), x->type().device), largest);
  auto* made = b.add(b.log(b.sum(b.exp(b.sub(w, from)), dims)), from);
  return {b.to(b.view(made, n.output().type().sizes), dtype)};
}

/// (sum of |x|^p)^(1/p), for 0 how many are not 0, for infinity the largest.
Values vector_norm(Builder& b, const Node& n, double p) {
  auto* x = self(n);
  const auto dtype = n.output().type().dtype;
  const auto dims = dims_of(n, x);
  if (x->type().numel() == 0 || !ir::is_floating(x->type().dtype)) return {};
  // ATen converts to the type that is asked for, then to what it sums in.
  auto* w = b.to(b.to(x, dtype), wide(dtype));
  const bool keep = ir::bool_of(n, "keepdim", false);
  const bool of_one = count_of(x, dims) == 1;
  Value* made = nullptr;
  if (p == 0) {
    made = b.sum(b.to(b.compare_with("aten::ne.Scalar", w, int64_t{0}), wide(dtype)), dims, keep);
  } else if (of_one) {
    made = b.unary("aten::abs", w);
  } else if (std::isinf(p)) {
    made = b.reduce(p > 0 ? "aten::amax" : "aten::amin", b.unary("aten::abs", w), dims, keep);
  } else if (p == 1) {
    made = b.sum(b.unary("aten::abs", w), dims, keep);
  } else if (p == 2) {
    made = b.sqrt(b.sum(b.mul(w, w), dims, keep));
  } else {
    const auto power = [&](Value* v, double e) {
      return b.call("aten::pow.Tensor_Scalar", {{"self", v}, {"exponent", ir::Attribute(e)}}, v->type());
    };
    auto* magnitude = b.unary("aten::abs", w);
    made = power(b.sum(power(magnitude, p), dims, keep), 1 / p);
  }
  return {b.to(b.view(made, n.output().type().sizes), dtype)};
}

struct SoftmaxGradient {
  Value *grad, *output;
  Dims dims;
  ir::DType dtype;
};
SoftmaxGradient softmax_gradient(Builder& b, const Node& n) {
  auto* output = ir::value_of(n, "output");
  const auto dtype = n.output().type().dtype;
  return {b.to(ir::value_of(n, "grad_output"), wide(dtype)),
          b.to(output, wide(dtype)),
          {ir::wrapped(*ir::int_of(n, "dim"), output->type().sizes.size())},
          dtype};
}

Values softmax_backward(Builder& b, const Node& n) {
  if (n.output().type().numel() == 0 || n.output().type().sizes.empty()) return {};
  const auto g = softmax_gradient(b, n);
  auto* weighted = b.mul(g.grad, g.output);
  return {b.to(b.sub(weighted, b.mul(g.output, b.sum(weighted, g.dims))), g.dtype)};
}

Values log_softmax_backward(Builder& b, const Node& n) {
  if (n.output().type().numel() == 0 || n.output().type().sizes.empty()) return {};
  const auto g = softmax_gradient(b, n);
  return {b.to(b.sub(g.grad, b.mul(b.exp(g.output), b.sum(g.grad, g.dims))), g.dtype)};
}

/// Values and places are two reductions of one loop.
Values extreme(Builder& b, const Node& n, const char* values, const char* places) {
  auto* x = self(n);
  if (x->type().numel() == 0 || x->type().sizes.empty()) return {};
  const auto dim = ir::wrapped(*ir::int_of(n, "dim"), x->type().sizes.size());
  const bool keep = ir::bool_of(n, "keepdim", false);
  auto* best = b.reduce(values, x, {dim}, keep);
  auto type = best->type();
  type.dtype = ir::DType::i64;
  auto* at =
      b.call(places, {{"self", x}, {"dim", ir::Attribute(dim)}, {"keepdim", ir::Attribute(keep)}}, type);
  return {best, at};
}

/// Over one element: a copy, so that the result has memory of its own.
Values copy_of_one(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto& out = n.output().type();
  if (x->type().numel() != out.numel() || x->type().numel() == 0) return {};
  if (n.op().starts_with("aten::any") || n.op().starts_with("aten::all"))
    x = b.compare_with("aten::ne.Scalar", x, int64_t{0});
  auto* copy = x->type().dtype == out.dtype ? b.unary("aten::clone", x) : b.to(x, out.dtype);
  copy->set_type(ir::contiguous(out.dtype, copy->type().sizes, out.device));
  return {b.view(copy, out.sizes)};
}

/// A running sum along one place.
Values scan_of_one(Builder& b, const Node& n) {
  const auto& sizes = n.output().type().sizes;
  const auto dim = ir::int_of(n, "dim");
  const bool one = sizes.empty() || (dim && sizes[static_cast<size_t>(ir::wrapped(*dim, sizes.size()))] == 1);
  return one ? copy_of_one(b, n) : Values{};
}

Values place_of_one(Builder& b, const Node& n) {
  const auto& out = n.output().type();
  if (self(n)->type().numel() != out.numel() || out.numel() == 0) return {};
  return {b.full(out.sizes, 0, out.dtype, out.device)};
}

}  // namespace

void add_reductions(Table& table) {
  for (const char* name : {"aten::sum", "aten::sum.dim_IntList", "aten::prod", "aten::prod.dim_int",
                           "aten::amax", "aten::amin", "aten::max", "aten::min", "aten::any", "aten::any.dim",
                           "aten::any.dims", "aten::all", "aten::all.dim", "aten::all.dims"})
    table[name] = copy_of_one;
  table["aten::argmax"] = table["aten::argmin"] = place_of_one;
  table["aten::cumsum"] = table["aten::cumprod"] = scan_of_one;
  table["aten::mean"] = mean;
  table["aten::mean.dim"] = mean;
  table["aten::var.correction"] = var;
  table["aten::std.correction"] = standard_deviation;
  table["aten::var_mean.correction"] = var_mean;
  table["aten::std_mean.correction"] = std_mean;
  table["aten::nansum"] = sum_of_numbers;
  table["aten::count_nonzero"] = table["aten::count_nonzero.dim_IntList"] = count_nonzero;
  table["aten::aminmax"] = least_and_most;
  table["aten::logsumexp"] = logsumexp;
  table["aten::linalg_vector_norm"] = [](Builder& b, const Node& n) {
    return vector_norm(b, n, ir::number_of(n, "ord").value_or(2));
  };
  for (const char* name : {"aten::norm.Scalar", "aten::norm.ScalarOpt_dim"})
    table[name] = [](Builder& b, const Node& n) {
      return vector_norm(b, n, ir::number_of(n, "p").value_or(2));
    };
  table["aten::_softmax"] = softmax;
  table["aten::_log_softmax"] = log_softmax;
  table["aten::_softmax_backward_data"] = softmax_backward;
  table["aten::_log_softmax_backward_data"] = log_softmax_backward;
  table["aten::max.dim"] = [](Builder& b, const Node& n) {
    return extreme(b, n, "aten::amax", "aten::argmax");
  };
  table["aten::min.dim"] = [](Builder& b, const Node& n) {
    return extreme(b, n, "aten::amin", "aten::argmin");
  };
}

}  // namespace graft::decomp
