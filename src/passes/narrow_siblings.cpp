#include "passes/narrow_siblings.h"

#include <algorithm>
#include <map>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "passes/siblings.h"

namespace graft::passes {
namespace {

using ir::Dim;
using ir::Node;
using ir::Value;

/// The inputs [n, k] that lie one below the other in a weight; nothing where it is made of something else.
std::optional<std::vector<Value*>> rows_of(Value& weight) {
  if (!weight.producer()) return std::vector<Value*>{&weight};
  if (weight.producer()->op() != "aten::cat" || ir::int_of(*weight.producer(), "dim").value_or(0) != 0)
    return std::nullopt;
  const auto* parts = ir::values_of(*weight.producer(), "tensors");
  if (!parts || std::any_of(parts->begin(), parts->end(), [](const Value* part) { return part->producer(); }))
    return std::nullopt;
  return *parts;
}

struct Narrow {
  Sibling sibling;
  std::vector<Value*> rows;
};

std::optional<Narrow> narrow_of(Node& node, Dim most) {
  auto sibling = sibling_of(node);
  if (!sibling || sibling->width > most) return std::nullopt;
  auto rows = rows_of(*sibling->weight);
  if (!rows) return std::nullopt;
  return Narrow{*sibling, std::move(*rows)};
}

/// A view that turns the columns or takes them apart is read by a product: that is slower with other strides.
bool keeps_columns(const Value& value, Dim width) {
  return std::ranges::all_of(value.users(), [&](const Node* user) {
    if (!ir::is_reshape(*user)) return ir::kind_of(user->op()) != ir::OpKind::view;
    const auto& sizes = user->output().type().sizes;
    return !sizes.empty() && sizes.back() == width && keeps_columns(user->output(), width);
  });
}

}  // namespace

void join_narrow_siblings(ir::Graph& graph, int64_t width) {
  std::map<const Value*, std::vector<Narrow>> by_input;
  std::vector<const Value*> order;
  for (auto* node : ir::nodes_of(graph)) {
    auto narrow = narrow_of(*node, width);
    if (!narrow || !keeps_columns(node->output(), narrow->sibling.width) ||
        !can_be_columns(narrow->sibling, graph))
      continue;
    const auto* x = narrow->sibling.x;
    if (!by_input.contains(x)) order.push_back(x);
    by_input[x].push_back(std::move(*narrow));
  }
  for (const auto* x : order) {
    if (by_input[x].size() < 2) continue;
    std::vector<Sibling> siblings;
    ir::ValueList rows;
    for (const auto& each : by_input[x]) {
      siblings.push_back(each.sibling);
      rows.insert(rows.end(), each.rows.begin(), each.rows.end());
    }
    join(graph, siblings, "aten::cat", rows);
  }
}

}  // namespace graft::passes
