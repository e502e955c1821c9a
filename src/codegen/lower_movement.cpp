// Operators that move elements, as instructions: gathering, joining, padding, and the backward of slicing.
#include <algorithm>
#include <numeric>

#include "codegen/lower_tables.h"
#include "codegen/scan.h"
#include "codegen/scatter.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

const Value& self(const Node& node) { return *ir::value_of(node, "self"); }

size_t dim_of(const Node& node, size_t rank) {
  return static_cast<size_t>(ir::wrapped(ir::int_of(node, "dim").value_or(0), rank));
}

/// A flag for low <= position < high; -1 where it always holds, -2 where it never does.
constexpr int always = -1, never = -2;
int within(Lowering& l, const Index& position, int64_t low, int64_t high) {
  if (position.max() < low || position.min() >= high) return never;
  int flag = always;
  const auto both = [&](int more) {
    flag = flag == always ? more : l.emit(Op::logical_and, DType::boolean, {flag, more});
  };
  if (position.min() < low)
    both(l.emit(Op::ge, DType::boolean, {l.iota(position), l.integer(DType::i64, low)}));
  if (position.max() >= high)
    both(l.emit(Op::lt, DType::boolean, {l.iota(position), l.integer(DType::i64, high)}));
  return flag;
}

int choose(Lowering& l, const Node& n, int flag, const std::function<int()>& inside,
           const std::function<int()>& outside) {
  if (flag == always) return l.cast(inside(), out(n));
  if (flag == never) return l.cast(outside(), out(n));
  const int a = l.cast(l.guarded(flag, inside), out(n));
  return l.emit(Op::select, out(n), {flag, a, l.cast(outside(), out(n))});
}

int cat(Lowering& l, const Node& n, const Place& p) {
  std::vector<const Value*> pieces;
  for (const auto* value : *ir::values_of(n, "tensors"))
    if (value->type().numel() > 0) pieces.push_back(value);
  const size_t dim = dim_of(n, p.size());
  const auto size = [&](const Value* v) { return v->type().sizes[dim]; };
  const bool equal =
      std::all_of(pieces.begin(), pieces.end(), [&](const Value* v) { return size(v) == size(pieces[0]); });
  int result = -1;
  int64_t start = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto place = p;
    int flag = always;
    if (equal && pieces.size() > 1) {
      // Pieces of one size: which one it is, is a quotient, and the loop is split there.
      flag = l.emit(Op::eq, DType::boolean,
                    {l.iota(p[dim] / size(pieces[i])), l.integer(DType::i64, static_cast<int64_t>(i))});
      place[dim] = p[dim] % size(pieces[i]);
    } else {
      flag = within(l, p[dim], start, start + size(pieces[i]));
      place[dim] = p[dim] - start;
    }
    start += size(pieces[i]);
    if (flag == never) continue;
    const auto piece = [&] { return l.evaluate(*pieces[i], place); };
    if (result < 0)
      result = l.cast(flag == always ? piece() : l.guarded(flag, piece), out(n));
    else
      result = l.emit(Op::select, out(n), {flag, l.cast(l.guarded(flag, piece), out(n)), result});
  }
  return result;
}

/// Each piece is one place along a dimension of its own.
int stack(Lowering& l, const Node& n, const Place& p) {
  const auto& pieces = *ir::values_of(n, "tensors");
  const size_t dim = dim_of(n, p.size());
  auto place = p;
  place.erase(place.begin() + static_cast<int64_t>(dim));
  int result = -1;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const int flag = within(l, p[dim], number, number + 1);
    if (flag == never) continue;
    const auto piece = [&] { return l.evaluate(*pieces[i], place); };
    const int x = l.cast(flag == always ? piece() : l.guarded(flag, piece), out(n));
    result = result < 0 ? x : l.emit(Op::select, out(n), {flag, x, result});
  }
  return result;
}

struct Slice {
  size_t dim;
  int64_t start, end, step;
};
Slice slice_of(const Node& n, const std::vector<int64_t>& sizes) {
  const size_t dim = dim_of(n, sizes.size());
  const auto clamp = [&](int64_t v) {
    return std::clamp<int64_t>(v < 0 ? v + sizes[dim] : v, 0, sizes[dim]);
  };
  return {dim, clamp(ir::int_of(n, "start").value_or(0)), clamp(ir::int_of(n, "end").value_or(sizes[dim])),
          ir::int_of(n, "step").value_or(1)};
}

/// The elements of `inside` where the slice is, those of `outside` elsewhere.
int put_slice(Lowering& l, const Node& n, const Place& p, const Slice& s, const Value& inside,
              const std::function<int()>& outside) {
  auto place = p;
  place[s.dim] = (p[s.dim] - s.start) / s.step;
  int flag = within(l, p[s.dim], s.start, s.end);
  if (s.step != 1 && flag != never) {
    const int on =
        l.emit(Op::eq, DType::boolean,
               {l.iota((p[s.dim] + (s.step - s.start % s.step)) % s.step), l.integer(DType::i64, 0)});
    flag = flag == always ? on : l.emit(Op::logical_and, DType::boolean, {flag, on});
  }
  return choose(l, n, flag, [&] { return l.evaluate(inside, place); }, outside);
}

int slice_scatter(Lowering& l, const Node& n, const Place& p) {
  return put_slice(l, n, p, slice_of(n, n.output().type().sizes), *ir::value_of(n, "src"),
                   [&] { return l.evaluate(self(n), p); });
}

int slice_backward(Lowering& l, const Node& n, const Place& p) {
  return put_slice(l, n, p, slice_of(n, n.output().type().sizes), *ir::value_of(n, "grad_output"),
                   [&] { return l.integer(out(n), 0); });
}

int put_selected(Lowering& l, const Node& n, const Place& p, const Value& inside,
                 const std::function<int()>& outside) {
  const size_t dim = dim_of(n, p.size());
  auto index = *ir::int_of(n, "index");
  if (index < 0) index += n.output().type().sizes[dim];
  auto place = p;
  place.erase(place.begin() + static_cast<int64_t>(dim));
  return choose(
      l, n, within(l, p[dim], index, index + 1), [&] { return l.evaluate(inside, place); }, outside);
}

int select_scatter(Lowering& l, const Node& n, const Place& p) {
  return put_selected(l, n, p, *ir::value_of(n, "src"), [&] { return l.evaluate(self(n), p); });
}
int select_backward(Lowering& l, const Node& n, const Place& p) {
  return put_selected(l, n, p, *ir::value_of(n, "grad_output"), [&] { return l.integer(out(n), 0); });
}

int pad(Lowering& l, const Node& n, const Place& p) {
  const auto pads = *ir::ints_of(n, "pad");
  const auto padding = [&] {
    return n.argument("value") ? l.argument(n, "value", p, out(n)) : l.integer(out(n), 0);
  };
  auto place = p;
  int flag = always;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const size_t dim = p.size() - 1 - i;
    place[dim] = p[dim] - pads[2 * i];
    const int inside = within(l, place[dim], 0, self(n).type().sizes[dim]);
    if (inside == never) return padding();
    if (inside != always)
      flag = flag == always ? inside : l.emit(Op::logical_and, DType::boolean, {flag, inside});
  }
  return choose(l, n, flag, [&] { return l.evaluate(self(n), place); }, padding);
}

int flip(Lowering& l, const Node& n, const Place& p) {
  auto place = p;
  for (const int64_t d : ir::ints_of(n, "dims").value_or(std::vector<int64_t>{})) {
    if (p.empty()) break;  // a tensor with no dimension has a dimension 0 nevertheless
    const auto dim = static_cast<size_t>(ir::wrapped(d, p.size()));
    place[dim] = Index(n.output().type().sizes[dim] - 1) - p[dim];
  }
  return l.evaluate(self(n), place);
}

int repeat(Lowering& l, const Node& n, const Place& p) {
  const auto& sizes = self(n).type().sizes;
  Place place(p.end() - static_cast<int64_t>(sizes.size()), p.end());
  for (size_t i = 0; i < sizes.size(); ++i) place[i] = place[i] % sizes[i];
  return l.evaluate(self(n), place);
}

int64_t stride(const Value& v, size_t dim) { return v.type().strides[dim]; }
int64_t size(const Value& v, size_t dim) { return v.type().sizes[dim]; }

int embedding(Lowering& l, const Node& n, const Place& p) {
  const auto& table = *ir::value_of(n, "weight");
  const int row = l.at(*ir::value_of(n, "indices"), Place(p.begin(), p.end() - 1), DType::i64);
  return l.gather(table, {0, p.back()}, {{row, stride(table, 0), size(table, 0), false}});
}

int index_select(Lowering& l, const Node& n, const Place& p) {
  const size_t dim = dim_of(n, p.size());
  auto place = p;
  const auto& which = *ir::value_of(n, "index");
  const int at = l.at(which, which.type().sizes.empty() ? Place{} : Place{p[dim]}, DType::i64);
  place[dim] = 0;
  return l.gather(self(n), place, {{at, stride(self(n), dim), size(self(n), dim), false}});
}

int gather(Lowering& l, const Node& n, const Place& p) {
  const size_t dim = dim_of(n, p.size());
  auto place = p;
  const int at = l.at(*ir::value_of(n, "index"), p, DType::i64);
  place[dim] = 0;
  return l.gather(self(n), place, {{at, stride(self(n), dim), size(self(n), dim), false}});
}

int index(Lowering& l, const Node& n, const Place& p) {
  const auto [place, indirect] = indexed_place(l, self(n), *ir::values_of(n, "indices"), p);
  return l.gather(self(n), place, indirect);
}

/// grad * -1 at the target's class, times the class's weight; nothing elsewhere. [C], [N, C] or [N, C, H, W].
int nll_loss_backward(Lowering& l, const Node& n, const Place& p) {
  const auto& grad = *ir::value_of(n, "grad_output");
  const auto dtype = out(n);
  const size_t classes = p.size() == 1 ? 0 : 1;
  auto point = p;
  point.erase(point.begin() + static_cast<int64_t>(classes));
  const int target = l.at(*ir::value_of(n, "target"), point, DType::i64);
  const int ignored = l.integer(DType::i64, ir::int_of(n, "ignore_index").value_or(-100));
  const int hit = l.emit(Op::logical_and, DType::boolean,
                         {l.emit(Op::eq, DType::boolean, {l.iota(p[classes]), target}),
                          l.emit(Op::ne, DType::boolean, {target, ignored})});
  int g = l.at(grad, grad.type().sizes.empty() ? Place{} : point, dtype);
  if (const auto* weight = ir::value_of(n, "weight"))
    g = l.emit(Op::mul, dtype, {g, l.at(*weight, {p[classes]}, dtype)});
  if (ir::int_of(n, "reduction") == 1)
    g = l.emit(Op::div, dtype, {g, l.at(*ir::value_of(n, "total_weight"), {}, dtype)});
  return l.emit(Op::select, dtype, {hit, l.emit(Op::neg, dtype, {g}), l.constant(dtype, 0)});
}

const LowerTable& table() {
  static const LowerTable made = [] {
    LowerTable t;
    add_pointwise(t);
    add_elementary(t);
    add_activations(t);
    add_creation(t);
    add_movement(t);
    add_resampling(t);
    add_whole(t);
    return t;
  }();
  return made;
}

bool dtypes_supported(const Node& node) {
  const auto supported = [](const Value* v) { return v->type().dtype <= DType::boolean; };
  const auto inputs = node.inputs();
  return supported(&node.output()) && std::all_of(inputs.begin(), inputs.end(), supported);
}

}  // namespace

bool index_applies(const Node& n) {
  bool any = false;
  for (const auto* v : *ir::values_of(n, "indices")) {
    if (!v) continue;
    any = true;
    if (v->type().dtype != DType::i64 && v->type().dtype != DType::i32) return false;
  }
  return any;
}

IndexShape index_shape(const ir::ValueList& indices) {
  IndexShape found;
  size_t first = indices.size(), count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    const auto& sizes = indices[i]->type().sizes;
    if (sizes.size() > found.sizes.size())
      found.sizes.insert(found.sizes.begin(), sizes.size() - found.sizes.size(), 1);
    const size_t skipped = found.sizes.size() - sizes.size();
    for (size_t k = 0; k < sizes.size(); ++k)
      if (sizes[k] != 1) found.sizes[skipped + k] = sizes[k];
    first = std::min(first, i), found.last = i, ++count;
  }
  found.together = found.last - first + 1 == count;
  found.front = found.together ? first : 0;
  return found;
}

std::pair<Place, std::vector<Instruction::Indirect>> indexed_place(Lowering& l, const Value& table,
                                                                   const ir::ValueList& indices,
                                                                   const Place& p) {
  const auto found = index_shape(indices);
  const auto begin = p.begin() + static_cast<int64_t>(found.front);
  const Place at_indices(begin, begin + static_cast<int64_t>(found.sizes.size()));
  Place place;
  std::vector<Instruction::Indirect> indirect;
  size_t next = found.together ? 0 : found.sizes.size();
  for (size_t i = 0; i < table.type().sizes.size(); ++i) {
    if (i < indices.size() && indices[i]) {
      const auto& sizes = indices[i]->type().sizes;
      Place own(at_indices.end() - static_cast<int64_t>(sizes.size()), at_indices.end());
      for (size_t k = 0; k < sizes.size(); ++k)
        if (sizes[k] == 1) own[k] = 0;
      indirect.push_back({l.at(*indices[i], own, DType::i64), stride(table, i), size(table, i), true});
      place.emplace_back(0);
      if (found.together && i == found.last) next = found.front + found.sizes.size();
    } else {
      place.push_back(p[next++]);
    }
  }
  return {place, indirect};
}

void add_movement(LowerTable& t) {
  t["aten::cat"] = {cat, [](const Node& n) {
                      return n.output().type().numel() > 0 && ir::values_of(n, "tensors")->size() <= 8;
                    }};
  t["aten::stack"] = {stack, [](const Node& n) {
                        return n.output().type().numel() > 0 && ir::values_of(n, "tensors")->size() <= 8;
                      }};
  t["aten::slice_scatter"] = {slice_scatter};
  t["aten::slice_backward"] = {slice_backward};
  t["aten::select_scatter"] = {select_scatter};
  t["aten::select_backward"] = {select_backward};
  t["aten::constant_pad_nd"] = {pad};
  t["aten::flip"] = {flip};
  t["aten::repeat"] = {repeat};
  t["aten::embedding"] = {embedding};
  // Of a tensor with no dimensions torch takes its one element as often as it is asked for.
  const auto has_dimensions = [](const Node& n) {
    return !n.output().type().sizes.empty() && !self(n).type().sizes.empty();
  };
  t["aten::index_select"] = {index_select, has_dimensions};
  t["aten::gather"] = {gather, has_dimensions};
  t["aten::index.Tensor"] = {index, index_applies};
  t["aten::_unsafe_index.Tensor"] = {index, index_applies};
  t["aten::nll_loss_backward"] = {nll_loss_backward};
  t["aten::nll_loss2d_backward"] = {nll_loss_backward};
}

const Lower* find_lowering(const Node& node) {
  const auto found = table().find(node.op());
  if (found == table().end() || node.outputs().size() != 1 || !dtypes_supported(node)) return nullptr;
  if (node.output().type().numel() == 0) return nullptr;  // nothing to compute, and no place to compute it at
  if (found->second.applies && !found->second.applies(node)) return nullptr;
  return &found->second.lower;
}

std::vector<std::string> lowered_operators() {
  auto names = reduction_operators();
  for (auto& name : scatter_operators()) names.push_back(std::move(name));
  for (auto& name : scan_operators()) names.push_back(std::move(name));
  for (const auto& [name, entry] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<const Value*> gathered_arguments(const Node& node) {
  if (node.op() == "aten::embedding") return {ir::value_of(node, "weight")};
  if (node.op() == "aten::index_select" || node.op() == "aten::gather" || node.op() == "aten::index.Tensor" ||
      node.op() == "aten::_unsafe_index.Tensor" || reads_by_place(node))
    return {ir::value_of(node, "self")};
  return {};
}

}  // namespace graft::codegen
