// Upsampling by whole factors. The results of one element are the same mixture of it and its neighbours
// wherever it lies: with a factor of s, result s * k + r is at k + (r + 0.5) / s - 0.5. So they are products
// of slices of the padded input and a few weights. Dimension by dimension.
#include <cmath>
#include <numeric>

#include "decomp/table.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/upsampling.h"

namespace graft::decomp {
namespace {

using ir::Attribute;
using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

// --- nearest, backward

/// Where each element was taken a whole number of times: the sum of its copies.
Values nearest_backward(Builder& b, const Node& n) {
  const auto dtype = n.output().type().dtype;
  const auto& sizes = n.output().type().sizes;
  auto* grad = ir::value_of(n, "grad_output");
  Dims split{sizes[0], sizes[1]}, copies;
  if (n.output().type().numel() == 0 || !ir::is_floating(dtype)) return {};
  for (size_t i = 2; i < sizes.size(); ++i) {
    const int64_t to = grad->type().sizes[i], times = to / sizes[i];
    const bool exact = n.op().starts_with("aten::_upsample_nearest_exact");
    if (to % sizes[i] != 0 || !ir::takes_quotients(n, exact, i, sizes[i], to)) return {};
    split.push_back(sizes[i]);
    copies.push_back(static_cast<int64_t>(split.size()));
    split.push_back(times);
  }
  auto* g = b.view(b.contiguous(b.to(grad, wide(dtype))), split);
  return {b.to(b.sum(g, copies, false), dtype)};
}

// --- between neighbours

struct Axis {
  int64_t dim, size, factor;  // size: of the smaller tensor
};

/// More slices than that are faster by ATen's loops.
constexpr int64_t most_copies = 8;

/// Along which dimensions of [N, C, ...] it becomes larger; nothing where it is not by whole factors.
std::optional<std::vector<Axis>> axes_of(const Node& n, const Value& small, const Value& large) {
  if (small.type().numel() == 0 || large.type().numel() == 0 || !ir::is_floating(large.type().dtype) ||
      !n.output().type().is_contiguous() ||  // channels last: ATen's loops are vectors of channels
      ir::bool_of(n, "align_corners", false))
    return std::nullopt;
  std::vector<Axis> found;
  for (size_t dim = 2; dim < small.type().sizes.size(); ++dim) {
    const int64_t from = small.type().sizes[dim], to = large.type().sizes[dim], factor = to / from;
    const auto named = ir::upsampling_factor(n, dim);
    if (to % from != 0 || factor > most_copies || (named && *named != static_cast<double>(factor)))
      return std::nullopt;
    if (factor > 1) found.push_back({static_cast<int64_t>(dim), from, factor});
  }
  if (found.empty()) return std::nullopt;
  return found;
}

/// How far result r is from the element before it, and whether that one is k - 1.
struct Between {
  double distance;
  bool before;
};
Between between(int64_t r, int64_t factor) {
  const double place = (static_cast<double>(r) + 0.5) / static_cast<double>(factor) - 0.5;
  return {place < 0 ? place + 1 : place, place < 0};
}

/// The same for all r, as values that lie along one dimension, with others after it.
struct BetweenAll {
  Value *distance, *before;
};
BetweenAll between_all(Builder& b, const Value& x, const Axis& a) {
  const auto device = x.type().device;
  auto* numbers = b.call("aten::arange.start_step",
                         {{"start", Attribute(int64_t{0})},
                          {"end", Attribute(a.factor)},
                          {"step", Attribute(int64_t{1})},
                          {"dtype", Attribute(ir::DType::i64)},
                          {"device", Attribute(device)}},
                         ir::contiguous(ir::DType::i64, {a.factor}, device));
  Dims sizes(x.type().sizes.size() - static_cast<size_t>(a.dim), 1);
  sizes[0] = a.factor;
  auto* r = b.view(numbers, sizes);
  auto* before = b.compare_with("aten::lt.Scalar", r, Attribute(a.factor / 2));
  auto* place = b.add(b.mul(b.add(b.to(r, x.type().dtype), 0.5), 1 / static_cast<double>(a.factor)), -0.5);
  return {b.where(before, b.add(place, 1.0), place), before};
}

/// What neighbours count, the one furthest to the left first, by the distance from the one that is next on
/// the left.
using Weights = Values (*)(Builder&, Value*);
Values linear_weights(Builder& b, Value* distance) { return {b.add(b.neg(distance), 1.0), distance}; }

/// Keys' cubic convolution, as ATen has it.
constexpr double cubic = -0.75;
Values cubic_weights(Builder& b, Value* distance) {
  const auto near = [&](Value* x) {
    auto* inner = b.mul(b.add(b.mul(x, cubic + 2), -(cubic + 3)), x);
    return b.add(b.mul(inner, x), 1.0);
  };
  const auto far = [&](Value* x) {  // between 1 and 2
    auto* inner = b.add(b.mul(b.add(b.mul(x, cubic), -5 * cubic), x), 8 * cubic);
    return b.add(b.mul(inner, x), -4 * cubic);
  };
  auto* rest = b.add(b.neg(distance), 1.0);
  return {far(b.add(distance, 1.0)), near(distance), near(rest), far(b.add(rest, 1.0))};
}

/// `x` has half as many elements more on each side as there are weights.
Value* along(Builder& b, Value* x, const Axis& a, Weights weights_by) {
  const auto place = between_all(b, *x, a);
  const auto weights = weights_by(b, place.distance);
  Value* made = nullptr;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto from = [&](int64_t start) {
      return b.unsqueeze(b.slice(x, a.dim, start, start + a.size), a.dim + 1);
    };
    const auto t = static_cast<int64_t>(i);
    auto* term = b.mul(b.where(place.before, from(t), from(t + 1)), weights[i]);
    made = made ? b.add(made, term) : term;
  }
  auto sizes = x->type().sizes;
  sizes[static_cast<size_t>(a.dim)] = a.size * a.factor;
  return b.view(made, sizes);
}

Value* padded(Builder& b, Value* x, const std::vector<Axis>& axes, int64_t by) {
  auto sizes = x->type().sizes;
  const size_t dims = sizes.size() - 2;
  Dims pads(2 * dims, 0);
  for (const auto& a : axes) {
    const size_t from_last = sizes.size() - 1 - static_cast<size_t>(a.dim);
    pads[2 * from_last] = pads[2 * from_last + 1] = by;
    sizes[static_cast<size_t>(a.dim)] += 2 * by;
  }
  return b.call("aten::replication_pad" + std::to_string(dims) + "d",
                {{"self", x}, {"padding", Attribute(std::move(pads))}},
                ir::contiguous(x->type().dtype, std::move(sizes), x->type().device));
}

Values upsample(Builder& b, const Node& n, Weights weights, int64_t padding) {
  auto* x = ir::value_of(n, "self");
  const auto dtype = n.output().type().dtype;
  const auto axes = axes_of(n, *x, n.output());
  if (!axes) return {};
  auto* made = padded(b, b.to(x, wide(dtype)), *axes, padding);
  // Rows are short until the last step.
  for (auto a = axes->rbegin(); a != axes->rend(); ++a) made = along(b, made, *a, weights);
  return {b.to(made, dtype)};
}
Values linear(Builder& b, const Node& n) { return upsample(b, n, linear_weights, 1); }
Values bicubic(Builder& b, const Node& n) { return upsample(b, n, cubic_weights, 2); }

/// Each element has what was made of it: of its own results, of the next one's first half, of the last one's
/// second half. At the ends its own take their place.
Value* linear_backward_along(Builder& b, Value* g, const Axis& a) {
  const int64_t n = a.size, end = n * a.factor;
  Value *own = nullptr, *first = nullptr, *second = nullptr;
  const auto add = [&](Value*& sum, Value* x) { sum = sum ? b.add(sum, x) : x; };
  for (int64_t r = 0; r < a.factor; ++r) {
    const auto [distance, before] = between(r, a.factor);
    auto* slice = b.slice(g, a.dim, r, end - a.factor + r + 1, a.factor);
    add(own, b.mul(slice, before ? distance : 1 - distance));
    add(before ? first : second, b.mul(slice, before ? 1 - distance : distance));
  }
  if (n == 1) return b.add(b.add(own, first), second);
  auto* from_next = b.cat({b.slice(first, a.dim, 1, n), b.slice(second, a.dim, n - 1, n)}, a.dim);
  auto* from_last = b.cat({b.slice(first, a.dim, 0, 1), b.slice(second, a.dim, 0, n - 1)}, a.dim);
  return b.add(own, b.add(from_next, from_last));
}

Values linear_backward(Builder& b, const Node& n) {
  auto* grad = ir::value_of(n, "grad_output");
  const auto dtype = n.output().type().dtype;
  const auto axes = axes_of(n, n.output(), *grad);
  if (!axes) return {};
  auto* g = b.to(grad, wide(dtype));
  for (const auto& a : *axes) g = linear_backward_along(b, g, a);
  return {b.to(g, dtype)};
}

}  // namespace

void add_upsampling(Table& table) {
  for (const char* dims : {"1d", "2d", "3d"}) {
    const std::string d = dims;
    table["aten::upsample_nearest" + d + "_backward"] = nearest_backward;
    table["aten::_upsample_nearest_exact" + d + "_backward"] = nearest_backward;
  }
  for (const std::string name :
       {"aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d"}) {
    table[name] = linear;
    table[name + "_backward"] = linear_backward;
  }
  table["aten::upsample_bicubic2d"] = bicubic;
}

}  // namespace graft::decomp
