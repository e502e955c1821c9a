#include "passes/written_slices.h"

#include <algorithm>
#include <optional>

#include "ir/arguments.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::Value;

// More pieces than a kernel takes (lower_movement.cpp).
constexpr size_t kMostPieces = 8;

struct Range {
  int64_t dim, start, end;
};
bool meet(const Range& a, const Range& b) { return a.start < b.end && b.start < a.end; }

/// What a slice without steps reads, or a slice_scatter writes.
std::optional<Range> range_of(const Node& node) {
  const auto& sizes = ir::value_of(node, "self")->type().sizes;
  if (ir::int_of(node, "step").value_or(1) != 1) return std::nullopt;
  const int64_t dim = ir::wrapped(ir::int_of(node, "dim").value_or(0), sizes.size());
  const int64_t size = sizes[static_cast<size_t>(dim)];
  const auto place = [&](std::string_view name, int64_t standard) {
    const int64_t at = ir::int_of(node, name).value_or(standard);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  return Range{dim, place("start", 0), place("end", size)};
}

const Node* write_behind(const Value& value, int64_t dim) {
  const auto* node = value.producer();
  if (!node || node->op() != "aten::slice_scatter") return nullptr;
  const auto range = range_of(*node);
  return range && range->dim == dim ? node : nullptr;
}

Value& slice_before(ir::Graph& graph, Value& base, const Range& range, Node& before) {
  auto type = base.type();
  type.sizes[static_cast<size_t>(range.dim)] = range.end - range.start;
  auto& slice = graph.add_node("aten::slice.Tensor",
                               {{"self", &base},
                                {"dim", ir::Attribute(range.dim)},
                                {"start", ir::Attribute(range.start)},
                                {"end", ir::Attribute(range.end)}},
                               {std::move(type)}, &before);
  slice.set_scope(before.scope());
  return slice.output();
}

/// A copy does not ask how what it reads lies in memory.
bool is_only_copied(const Value& value, const ir::Graph& graph) {
  return !value.users().empty() && !graph.is_result(value) &&
         std::ranges::all_of(value.users(), [](const Node* user) { return user->op() == "aten::copy"; });
}

/// Reads what was there before a write, or what was written, where it is only one of them.
void read_from_origin(ir::Graph& graph, Node& slice) {
  auto range = range_of(slice);
  if (!range || range->start >= range->end || !is_only_copied(slice.output(), graph)) return;
  Value* base = ir::value_of(slice, "self");
  const Value* first = base;
  while (const auto* write = write_behind(*base, range->dim)) {
    const auto written = *range_of(*write);
    if (!meet(written, *range)) {
      base = ir::value_of(*write, "self");
    } else if (written.start <= range->start && range->end <= written.end) {
      base = ir::value_of(*write, "src");
      *range = {range->dim, range->start - written.start, range->end - written.start};
    } else {
      break;
    }
  }
  if (base == first || base->type().dtype != first->type().dtype) return;
  graph.replace_uses(slice.output(), slice_before(graph, *base, *range, slice));
  graph.erase(slice);
}

struct Piece {
  Range range;
  Value* source;  // null: what was there before
};

/// With what lies between them, in order.
std::vector<Piece> with_gaps(std::vector<Piece> pieces, int64_t size) {
  std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.range.start; });
  std::vector<Piece> all;
  int64_t at = 0;
  const int64_t dim = pieces[0].range.dim;
  for (const auto& piece : pieces) {
    if (at < piece.range.start) all.push_back({{dim, at, piece.range.start}, nullptr});
    all.push_back(piece);
    at = piece.range.end;
  }
  if (at < size) all.push_back({{dim, at, size}, nullptr});
  return all;
}

/// What a copy only copies. Values do not change: there is no need of a second.
Value* without_copy(Value* value) {
  const auto* node = value->producer();
  if (!node || node->op() != "aten::copy") return value;
  auto* copied = ir::value_of(*node, "src");
  const auto &type = value->type(), &from = copied->type();
  return from.dtype == type.dtype && from.sizes == type.sizes && from.device == type.device ? copied : value;
}

bool is_written_further(const Value& value, int64_t dim, const ir::Graph& graph) {
  if (value.users().size() != 1 || graph.is_result(value)) return false;
  const auto& user = *value.users()[0];
  return write_behind(user.output(), dim) && ir::value_of(user, "self") == &value;
}

/// `last` and the writes before it, as long as nobody else sees what they leave.
void join(ir::Graph& graph, Node& last) {
  const auto range = range_of(last);
  const auto& type = last.output().type();
  if (!range || is_written_further(last.output(), range->dim, graph) || !type.is_contiguous()) return;
  std::vector<Piece> pieces;
  std::vector<Node*> writes;
  Value* base = &last.output();
  while (const auto* write = write_behind(*base, range->dim)) {
    const auto written = *range_of(*write);
    auto* source = ir::value_of(*write, "src");
    if (base != &last.output() && !is_written_further(*base, range->dim, graph)) break;
    if (written.start >= written.end || source->type().dtype != type.dtype ||
        std::ranges::any_of(pieces, [&](const Piece& piece) { return meet(piece.range, written); }))
      break;
    pieces.push_back({written, without_copy(source)});
    writes.push_back(base->producer());
    base = ir::value_of(*write, "self");
  }
  // What a caller's tensor is to hold afterwards is no new tensor.
  if (pieces.size() < 2 || !base->producer()) return;
  const auto all = with_gaps(std::move(pieces), type.sizes[static_cast<size_t>(range->dim)]);
  if (all.size() > kMostPieces) return;
  ir::ValueList values;
  for (const auto& piece : all)
    values.push_back(piece.source ? piece.source : &slice_before(graph, *base, piece.range, last));
  auto& cat = graph.add_node(
      "aten::cat", {{"tensors", std::move(values)}, {"dim", ir::Attribute(range->dim)}}, {type}, &last);
  cat.set_scope(last.scope());
  graph.replace_uses(last.output(), cat.output());
  for (auto* write : writes) graph.erase(*write);
}

}  // namespace

void join_written_slices(ir::Graph& graph) {
  for (auto* node : ir::nodes_of(graph))
    if (node->op() == "aten::slice.Tensor") read_from_origin(graph, *node);
  for (auto* node : ir::nodes_of(graph))
    if (node->op() == "aten::slice_scatter") join(graph, *node);
}

}  // namespace graft::passes
