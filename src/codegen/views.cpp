#include "codegen/views.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::Node;
using ir::Value;
using Map = std::function<Place(const Node&, const Value& view, const Place&)>;

const Value& source_of(const Node& node) { return *ir::value_of(node, "self"); }
size_t rank_of(const Node& node) { return source_of(node).type().sizes.size(); }

Place same(const Node&, const Value&, const Place& place) { return place; }

Place reshape(const Node& node, const Value& view, const Place& place) {
  const auto& from = source_of(node).type().sizes;
  const auto& to = view.type().sizes;
  if (from == to) return place;
  return unravel(linear(place, to), from);
}

Place permute(const Node& node, const Value&, const Place& place) {
  const auto dims = *ir::ints_of(node, "dims");
  Place source(place.size());
  for (size_t i = 0; i < dims.size(); ++i)
    source[static_cast<size_t>(ir::wrapped(dims[i], dims.size()))] = place[i];
  return source;
}

Place transpose(const Node& node, const Value&, const Place& place) {
  auto source = place;
  if (place.size() < 2) return source;
  const auto a = ir::wrapped(*ir::int_of(node, "dim0"), place.size());
  const auto b = ir::wrapped(*ir::int_of(node, "dim1"), place.size());
  std::swap(source[static_cast<size_t>(a)], source[static_cast<size_t>(b)]);
  return source;
}

Place t(const Node&, const Value&, const Place& place) { return {place.rbegin(), place.rend()}; }

Place expand(const Node& node, const Value&, const Place& place) {
  const auto& from = source_of(node).type().sizes;
  Place source(place.end() - static_cast<int64_t>(from.size()), place.end());
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] == 1) source[i] = 0;
  return source;
}

Place unsqueeze(const Node& node, const Value&, const Place& place) {
  auto source = place;
  source.erase(source.begin() + ir::wrapped(*ir::int_of(node, "dim"), place.size()));
  return source;
}

Place select(const Node& node, const Value&, const Place& place) {
  const auto dim = ir::wrapped(*ir::int_of(node, "dim"), rank_of(node));
  auto index = *ir::int_of(node, "index");
  if (index < 0) index += source_of(node).type().sizes[static_cast<size_t>(dim)];
  auto source = place;
  source.insert(source.begin() + dim, Index(index));
  return source;
}

Place slice(const Node& node, const Value&, const Place& place) {
  const auto dim = static_cast<size_t>(ir::wrapped(ir::int_of(node, "dim").value_or(0), rank_of(node)));
  const int64_t size = source_of(node).type().sizes[dim];
  auto start = ir::int_of(node, "start").value_or(0);
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  auto source = place;
  source[dim] = source[dim] * ir::int_of(node, "step").value_or(1) + start;
  return source;
}

/// The outputs of a split follow each other along one dimension.
Place split(const Node& node, const Value& view, const Place& place) {
  const auto dim = static_cast<size_t>(ir::wrapped(ir::int_of(node, "dim").value_or(0), rank_of(node)));
  int64_t start = 0;
  for (size_t i = 0; i < view.index(); ++i) start += node.output(i).type().sizes[dim];
  auto source = place;
  source[dim] = source[dim] + start;
  return source;
}

Place unbind(const Node& node, const Value& view, const Place& place) {
  const auto dim = ir::wrapped(ir::int_of(node, "dim").value_or(0), rank_of(node));
  auto source = place;
  source.insert(source.begin() + dim, Index(static_cast<int64_t>(view.index())));
  return source;
}

Place diagonal(const Node& node, const Value&, const Place& place) {
  const auto rank = rank_of(node);
  const auto a = static_cast<size_t>(ir::wrapped(ir::int_of(node, "dim1").value_or(0), rank));
  const auto b = static_cast<size_t>(ir::wrapped(ir::int_of(node, "dim2").value_or(1), rank));
  const auto offset = ir::int_of(node, "offset").value_or(0);
  Place source(rank);
  for (size_t i = 0, next = 0; i < rank; ++i)
    if (i != a && i != b) source[i] = place[next++];
  source[a] = place.back() + std::max<int64_t>(-offset, 0);
  source[b] = place.back() + std::max<int64_t>(offset, 0);
  return source;
}

/// Windows along a dimension; the place in the window is a new dimension at the end.
Place unfold(const Node& node, const Value&, const Place& place) {
  if (rank_of(node) == 0) return {};
  const auto dim = static_cast<size_t>(ir::wrapped(*ir::int_of(node, "dimension"), rank_of(node)));
  Place source(place.begin(), place.end() - 1);
  source[dim] = source[dim] * *ir::int_of(node, "step") + place.back();
  return source;
}

const std::unordered_map<std::string, Map>& maps() {
  static const std::unordered_map<std::string, Map> table = {
      {"aten::alias", same},
      {"aten::detach", same},
      {"aten::lift_fresh", same},
      {"aten::view", reshape},
      {"aten::_unsafe_view", reshape},
      {"aten::reshape", reshape},
      {"aten::_reshape_alias", reshape},
      {"aten::squeeze", reshape},
      {"aten::squeeze.dim", reshape},
      {"aten::squeeze.dims", reshape},
      {"aten::permute", permute},
      {"aten::transpose.int", transpose},
      {"aten::t", t},
      {"aten::expand", expand},
      {"aten::unsqueeze", unsqueeze},
      {"aten::select.int", select},
      {"aten::slice.Tensor", slice},
      {"aten::split.Tensor", split},
      {"aten::split_with_sizes", split},
      {"aten::unsafe_split.Tensor", split},
      {"aten::unsafe_split_with_sizes", split},
      {"aten::unbind.int", unbind},
      {"aten::diagonal", diagonal},
      {"aten::unfold", unfold},
  };
  return table;
}

}  // namespace

ir::Value* view_source(const Node& node) {
  return maps().contains(node.op()) ? ir::value_of(node, "self") : nullptr;
}

Place map_view(const Value& view, const Place& place) {
  const auto& node = *view.producer();
  const auto found = maps().find(node.op());
  if (found == maps().end()) throw std::logic_error(node.op() + " is not a view");
  return found->second(node, view, place);
}

int64_t view_offset(const Value& view) {
  const auto place = map_view(view, Place(view.type().sizes.size(), Index(0)));
  const auto& strides = ir::value_of(*view.producer(), "self")->type().strides;
  int64_t offset = 0;
  for (size_t i = 0; i < place.size(); ++i) offset += place[i].constant() * strides[i];
  return offset;
}

}  // namespace graft::codegen
