// Pooling over few elements, as operations between the slices that hold the first element of each window, the
// second, and so on; its backward where windows do not overlap.
#include <algorithm>
#include <limits>
#include <numeric>

#include "decomp/table.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft::decomp {
namespace {

using ir::Attribute;
using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

Value* self(const Node& n) { return ir::value_of(n, "self"); }

/// More are faster by ATen's loops.
constexpr int64_t most_slices = 16;

/// The windows along one dimension.
struct Windows {
  int64_t dim, kernel, stride, padding, dilation, in, out;
  int64_t reach() const { return (out - 1) * stride + dilation * (kernel - 1) + 1; }
};

/// Of a pooling over the last dimensions of `x`, to the sizes of `y`.
std::vector<Windows> windows_of(const Node& n, const Value* x, const Value* y, size_t dims) {
  const auto numbers = [&](const char* name, const Dims& standard) {
    auto given = ir::ints_of(n, name).value_or(Dims{});
    if (given.empty()) given = standard;
    if (given.size() == 1) given.resize(dims, given[0]);
    return given;
  };
  const auto kernel = numbers("kernel_size", {1}), stride = numbers("stride", kernel),
             padding = numbers("padding", {0}), dilation = numbers("dilation", {1});
  std::vector<Windows> found;
  found.reserve(dims);
  const size_t first = x->type().sizes.size() - dims;
  for (size_t i = 0; i < dims; ++i)
    found.push_back({static_cast<int64_t>(first + i), kernel[i], stride[i], padding[i], dilation[i],
                     x->type().sizes[first + i], y->type().sizes[first + i]});
  return found;
}

int64_t elements(const std::vector<Windows>& windows) {
  return std::transform_reduce(windows.begin(), windows.end(), int64_t{1}, std::multiplies<>(),
                               [](const Windows& w) { return w.kernel; });
}

bool are_side_by_side(const std::vector<Windows>& windows) {
  return std::ranges::all_of(
      windows, [](const Windows& w) { return w.padding == 0 && w.dilation == 1 && w.stride == w.kernel; });
}

bool has_elements(const Node& n) {
  return self(n)->type().numel() > 0 && n.output().type().numel() > 0 &&
         ir::is_floating(n.output().type().dtype);
}

/// Calls back with the slice of each element of a window and the element's places in it, the last dimension
/// fastest. Beyond the sides is `beside`.
void for_each_slice(Builder& b, Value* x, const std::vector<Windows>& windows, double beside,
                    const std::function<void(Value*, const Dims&)>& use) {
  for (const auto& w : windows)
    x = b.pad(x, w.dim, w.padding, std::max<int64_t>(0, w.reach() - w.in - w.padding), beside);
  Dims places(windows.size(), 0);
  for (int64_t i = 0; i < elements(windows); ++i) {
    auto* slice = x;
    int64_t rest = i;
    for (size_t k = windows.size(); k-- > 0;) {
      const auto& w = windows[k];
      places[k] = rest % w.kernel;
      rest /= w.kernel;
      const int64_t start = places[k] * w.dilation;
      slice = b.slice(slice, w.dim, start, start + (w.out - 1) * w.stride + 1, w.stride);
    }
    use(slice, places);
  }
}

/// start + i * step along one dimension of so many, and 1 along those after it.
Value* steps(Builder& b, const Windows& w, size_t rank, int64_t count, int64_t start, int64_t step,
             ir::Device device) {
  auto* made = b.call("aten::arange.start_step",
                      {{"start", Attribute(start)},
                       {"end", Attribute(start + count * step)},
                       {"step", Attribute(step)},
                       {"dtype", Attribute(ir::DType::i64)},
                       {"device", Attribute(device)}},
                      ir::contiguous(ir::DType::i64, {count}, device));
  Dims sizes(rank - static_cast<size_t>(w.dim), 1);
  sizes[0] = count;
  return b.view(made, sizes);
}

// --- the largest

/// Where in the image this element of each window is, counted row by row; of windows side by side.
Value* flat_places(Builder& b, const Value* x, const std::vector<Windows>& windows, const Dims& within) {
  Value* made = nullptr;
  int64_t row = 1;
  for (size_t k = windows.size(); k-- > 0; row *= windows[k].in) {
    const auto& w = windows[k];
    auto* along =
        steps(b, w, x->type().sizes.size(), w.out, within[k] * row, w.stride * row, x->type().device);
    made = made ? b.add(along, made) : along;
  }
  return made;
}

Values max_pool(Builder& b, const Node& n, size_t dims) {
  auto* x = self(n);
  if (!has_elements(n)) return {};
  const auto windows = windows_of(n, x, &n.output(0), dims);
  if (elements(windows) > most_slices) return {};
  const bool wants_places = n.outputs().size() > 1 && b.is_used(n.output(1));
  // The backward pass of windows that overlap is ATen's, which reads the places: they would be computed
  // twice.
  if (wants_places && !are_side_by_side(windows)) return {};
  // Of a window with nothing but -infinity the first place.
  Value *best = nullptr, *places = wants_places ? flat_places(b, x, windows, Dims(dims, 0)) : nullptr;
  for_each_slice(b, x, windows, -std::numeric_limits<double>::infinity(),
                 [&](Value* slice, const Dims& within) {
                   // As in torch the last of several NaN is taken, and the first of what is equal.
                   if (wants_places && best)
                     places = b.where(b.either(b.is_nan(slice), b.compare("aten::gt.Tensor", slice, best)),
                                      flat_places(b, x, windows, within), places);
                   best = best ? b.binary("aten::maximum", best, slice) : slice;
                 });
  if (best->producer() && ir::kind_of(best->producer()->op()) == ir::OpKind::view) best = b.copy(best);
  if (n.outputs().size() == 1) return {best};
  return {best, places};
}

// --- the mean

/// How many elements torch divides by: all that the window has, those of the padding among them or not.
Value* counts(Builder& b, const Value* x, const std::vector<Windows>& windows, bool with_padding,
              ir::DType dtype) {
  Value* made = nullptr;
  for (const auto& w : windows) {
    const auto device = x->type().device;
    const int64_t last = with_padding ? w.in + w.padding : w.in;
    auto* start = steps(b, w, x->type().sizes.size(), w.out, -w.padding, w.stride, device);
    auto* end = b.clamp(b.whole("aten::add.Scalar", start, w.kernel), std::nullopt, last);
    if (!with_padding) start = b.clamp(start, 0, std::nullopt);
    auto* count = b.sub(end, start);
    made = made ? b.binary("aten::mul.Tensor", made, count) : count;
  }
  return b.to(made, dtype);
}

Values avg_pool(Builder& b, const Node& n, size_t dims) {
  auto* x = self(n);
  if (!has_elements(n)) return {};
  const auto dtype = n.output().type().dtype;
  const auto windows = windows_of(n, x, &n.output(), dims);
  if (elements(windows) > most_slices) return {};
  Value* sum = nullptr;
  for_each_slice(b, b.to(x, wide(dtype)), windows, 0,
                 [&](Value* slice, const Dims&) { sum = sum ? b.add(sum, slice) : slice; });
  const bool with_padding = ir::bool_of(n, "count_include_pad", true);
  const bool all_whole = std::ranges::all_of(windows, [&](const Windows& w) {
    return with_padding ? w.reach() <= w.in + 2 * w.padding : w.padding == 0 && w.reach() <= w.in;
  });
  Value* made = nullptr;
  if (const auto divisor = ir::int_of(n, "divisor_override"))
    made = b.div(sum, static_cast<double>(*divisor));
  else if (all_whole)
    made = b.div(sum, static_cast<double>(elements(windows)));
  else
    made = b.div(sum, counts(b, x, windows, with_padding, wide(dtype)));
  return {b.to(made, dtype)};
}

/// To a size that divides the image's: windows side by side.
Values adaptive_avg_pool(Builder& b, const Node& n, size_t dims) {
  auto* x = self(n);
  if (!has_elements(n)) return {};
  const auto dtype = n.output().type().dtype;
  std::vector<Windows> windows;
  for (size_t dim = x->type().sizes.size() - dims; dim < x->type().sizes.size(); ++dim) {
    const int64_t in = x->type().sizes[dim], out = n.output().type().sizes[dim];
    if (in % out != 0) return {};
    windows.push_back({static_cast<int64_t>(dim), in / out, in / out, 0, 1, in, out});
  }
  if (elements(windows) > most_slices) return {};
  Value* sum = nullptr;
  for_each_slice(b, b.to(x, wide(dtype)), windows, 0,
                 [&](Value* slice, const Dims&) { sum = sum ? b.add(sum, slice) : slice; });
  return {b.to(b.div(sum, static_cast<double>(elements(windows))), dtype)};
}

// --- backward, of windows that do not overlap

/// Each element of `y` in all places of its window, zero or false between windows and behind them.
Value* spread(Builder& b, Value* y, const std::vector<Windows>& windows) {
  Dims sizes(y->type().sizes.begin(), y->type().sizes.end() - static_cast<int64_t>(windows.size())),
      wide_sizes = sizes, made_sizes = sizes;
  for (const auto& w : windows) {
    sizes.insert(sizes.end(), {w.out, 1});
    wide_sizes.insert(wide_sizes.end(), {w.out, w.kernel});
    made_sizes.push_back(w.out * w.kernel);
  }
  auto* made = b.view(b.copy(b.expand(b.view(b.contiguous(y), sizes), wide_sizes)), made_sizes);
  for (const auto& w : windows) {
    const int64_t covered = w.out * w.kernel;
    if (covered > w.in)
      made = b.slice(made, w.dim, 0, w.in);
    else
      made = b.pad(made, w.dim, 0, w.in - covered);
  }
  return made;
}

Values max_pool_backward(Builder& b, const Node& n, size_t dims) {
  auto* grad = ir::value_of(n, "grad_output");
  if (!has_elements(n)) return {};
  const auto windows = windows_of(n, self(n), grad, dims);
  if (!are_side_by_side(windows)) return {};
  const Windows image{windows[0].dim, 1, 1, 0, 1, 0, 0};
  const auto& sizes = n.output().type().sizes;
  const Dims inner(sizes.begin() + windows[0].dim, sizes.end());
  const int64_t count = std::reduce(inner.begin(), inner.end(), int64_t{1}, std::multiplies<>());
  auto* here =
      b.view(steps(b, image, static_cast<size_t>(image.dim) + 1, count, 0, 1, grad->type().device), inner);
  auto* chosen = b.compare("aten::eq.Tensor", spread(b, ir::value_of(n, "indices"), windows), here);
  auto* zero = b.full({}, 0, grad->type().dtype, grad->type().device);
  return {b.where(chosen, spread(b, grad, windows), zero)};
}

Values spread_mean(Builder& b, const Node& n, const std::vector<Windows>& windows, double count) {
  const auto dtype = n.output().type().dtype;
  auto* grad = b.to(ir::value_of(n, "grad_output"), wide(dtype));
  return {b.to(spread(b, b.div(grad, count), windows), dtype)};
}

Values avg_pool_backward(Builder& b, const Node& n, size_t dims) {
  if (!has_elements(n)) return {};
  const auto windows = windows_of(n, self(n), ir::value_of(n, "grad_output"), dims);
  const bool inside = std::ranges::all_of(windows, [](const Windows& w) { return w.reach() <= w.in; });
  if (!are_side_by_side(windows) || !inside) return {};
  const auto divisor = ir::int_of(n, "divisor_override").value_or(elements(windows));
  return spread_mean(b, n, windows, static_cast<double>(divisor));
}

Values adaptive_avg_pool_backward(Builder& b, const Node& n, size_t dims) {
  if (!has_elements(n)) return {};
  const auto& in = n.output().type().sizes;
  const auto& out = ir::value_of(n, "grad_output")->type().sizes;
  std::vector<Windows> windows;
  for (size_t dim = in.size() - dims; dim < in.size(); ++dim) {
    if (in[dim] % out[dim] != 0) return {};
    const int64_t kernel = in[dim] / out[dim];
    windows.push_back({static_cast<int64_t>(dim), kernel, kernel, 0, 1, in[dim], out[dim]});
  }
  return spread_mean(b, n, windows, static_cast<double>(elements(windows)));
}

}  // namespace

void add_pooling(Table& table) {
  // Where there is a gradient, it is that of images of one row.
  table["aten::max_pool1d"] = [](Builder& b, const Node& n) { return max_pool(b, n, 1); };
  for (const size_t dims : {size_t{2}, size_t{3}}) {
    const auto of = [dims](Values (*make)(Builder&, const Node&, size_t)) {
      return [make, dims](Builder& b, const Node& n) { return make(b, n, dims); };
    };
    const std::string d = std::to_string(dims) + "d";
    table["aten::max_pool" + d + "_with_indices"] = of(max_pool);
    table["aten::max_pool" + d + "_with_indices_backward"] = of(max_pool_backward);
    table["aten::avg_pool" + d] = of(avg_pool);
    table["aten::avg_pool" + d + "_backward"] = of(avg_pool_backward);
    table["aten::_adaptive_avg_pool" + d] = of(adaptive_avg_pool);
    table["aten::_adaptive_avg_pool" + d + "_backward"] = of(adaptive_avg_pool_backward);
  }
}

}  // namespace graft::decomp
