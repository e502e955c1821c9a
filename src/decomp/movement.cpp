// What moves elements in a fixed order, as views and copies; the backward of padding, where several elements
// come together, as sums.
#include <algorithm>
#include <numeric>

#include "decomp/table.h"
#include "ir/arguments.h"

namespace graft::decomp {
namespace {

using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

Value* self(const Node& n) { return ir::value_of(n, "self"); }

/// Viewed as `sizes`, the dimensions in another order, and as the result.
Values reordered(Builder& b, const Node& n, const Dims& sizes, const Dims& order) {
  auto* x = self(n);
  if (x->type().numel() == 0) return {};
  return {b.view(b.copy(b.permute(b.view(b.contiguous(x), sizes), order)), n.output().type().sizes)};
}

/// The dimensions before the last three, and the numbers of those that follow them.
struct Image {
  Dims before, order;
  int64_t channels, height, width;
  int64_t at(size_t i) const { return static_cast<int64_t>(before.size() + i); }
};
Image image_of(const Value* x) {
  const auto& sizes = x->type().sizes;
  const size_t outer = sizes.size() - 3;
  Image image{
      {sizes.begin(), sizes.end() - 3}, Dims(outer), sizes[outer], sizes[outer + 1], sizes[outer + 2]};
  std::iota(image.order.begin(), image.order.end(), 0);
  return image;
}

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Values pixel_shuffle(Builder& b, const Node& n) {
  const auto image = image_of(self(n));
  const int64_t r = *ir::int_of(n, "upscale_factor");
  return reordered(b, n, joined(image.before, {image.channels / (r * r), r, r, image.height, image.width}),
                   joined(image.order, {image.at(0), image.at(3), image.at(1), image.at(4), image.at(2)}));
}

Values pixel_unshuffle(Builder& b, const Node& n) {
  const auto image = image_of(self(n));
  const int64_t r = *ir::int_of(n, "downscale_factor");
  return reordered(b, n, joined(image.before, {image.channels, image.height / r, r, image.width / r, r}),
                   joined(image.order, {image.at(0), image.at(2), image.at(4), image.at(1), image.at(3)}));
}

Values channel_shuffle(Builder& b, const Node& n) {
  const auto& sizes = self(n)->type().sizes;
  const int64_t groups = *ir::int_of(n, "groups");
  Dims split{sizes[0], groups, sizes[1] / groups}, order{0, 2, 1};
  for (size_t i = 2; i < sizes.size(); ++i) {
    split.push_back(sizes[i]);
    order.push_back(static_cast<int64_t>(i) + 1);
  }
  return reordered(b, n, split, order);
}

Values roll(Builder& b, const Node& n) {
  auto* x = self(n);
  const auto& sizes = x->type().sizes;
  const auto shifts = *ir::ints_of(n, "shifts");
  const auto dims = ir::ints_of(n, "dims").value_or(Dims{});
  if (x->type().numel() == 0) return {};
  const bool flat = dims.empty();
  bool moved = false;
  auto* made = flat ? b.view(b.contiguous(x), {x->type().numel()}) : x;
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t dim = flat ? 0 : ir::wrapped(dims[i], sizes.size());
    const int64_t size = made->type().sizes[static_cast<size_t>(dim)];
    const int64_t start = ((size - shifts[i]) % size + size) % size;
    moved = moved || start != 0;
    if (start != 0) made = b.cat({b.slice(made, dim, start, size), b.slice(made, dim, 0, start)}, dim);
  }
  return {moved ? b.view(made, sizes) : b.copy(x)};
}

// --- padding, backward: dimension by dimension, each element has what was copied of it

struct Padding {
  int64_t dim, before, after, size;  // of the input
};
std::vector<Padding> paddings_of(const Node& n) {
  const auto pads = *ir::ints_of(n, "padding");
  const auto& sizes = self(n)->type().sizes;
  std::vector<Padding> found;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const size_t dim = sizes.size() - 1 - i;
    found.push_back({static_cast<int64_t>(dim), pads[2 * i], pads[2 * i + 1], sizes[dim]});
  }
  return found;
}

using Fold = Value* (*)(Builder&, Value*, const Padding&);
Values pad_backward(Builder& b, const Node& n, Fold fold) {
  const auto dtype = n.output().type().dtype;
  const auto paddings = paddings_of(n);
  if (n.output().type().numel() == 0 || std::any_of(paddings.begin(), paddings.end(), [](const auto& p) {
        return p.before < 0 || p.after < 0;
      }))
    return {};
  auto* g = b.to(ir::value_of(n, "grad_output"), wide(dtype));
  for (const auto& p : paddings) g = fold(b, g, p);
  // Nothing was padded.
  if (g == ir::value_of(n, "grad_output")) g = b.unary("aten::clone", g);
  return {b.to(g, dtype)};
}

/// Of so many elements at the sides of a dimension; more are faster by ATen's calls.
constexpr int64_t most_reflected = 4;

Value* fold_reflection(Builder& b, Value* g, const Padding& p) {
  auto* made = b.slice(g, p.dim, p.before, p.before + p.size);
  // One by one: a row that is read backwards would be gathered.
  const auto add = [&](int64_t from, int64_t to) {
    made = b.add(made, b.pad(b.slice(g, p.dim, from, from + 1), p.dim, to, p.size - 1 - to));
  };
  for (int64_t i = 1; i <= p.before; ++i) add(p.before - i, i);
  for (int64_t i = 1; i <= p.after; ++i) add(p.before + p.size - 1 + i, p.size - 1 - i);
  return made;
}

Value* fold_replication(Builder& b, Value* g, const Padding& p) {
  auto* made = b.slice(g, p.dim, p.before, p.before + p.size);
  if (p.before > 0)
    made = b.add(made, b.pad(b.sum(b.slice(g, p.dim, 0, p.before), {p.dim}), p.dim, 0, p.size - 1));
  if (p.after > 0) {
    const int64_t end = p.before + p.size;
    made = b.add(made, b.pad(b.sum(b.slice(g, p.dim, end, end + p.after), {p.dim}), p.dim, p.size - 1, 0));
  }
  return made;
}

}  // namespace

void add_movement(Table& table) {
  table["aten::pixel_shuffle"] = pixel_shuffle;
  table["aten::pixel_unshuffle"] = pixel_unshuffle;
  table["aten::channel_shuffle"] = channel_shuffle;
  table["aten::roll"] = roll;
  for (const char* dims : {"1d", "2d", "3d"}) {
    const std::string d = dims;
    table["aten::reflection_pad" + d + "_backward"] = [](Builder& b, const Node& n) {
      const auto paddings = paddings_of(n);
      const bool few = std::all_of(paddings.begin(), paddings.end(),
                                   [](const auto& p) { return p.before + p.after <= most_reflected; });
      return few ? pad_backward(b, n, fold_reflection) : Values{};
    };
    table["aten::replication_pad" + d + "_backward"] = [](Builder& b, const Node& n) {
      return pad_backward(b, n, fold_replication);
    };
  }
}

}  // namespace graft::decomp
