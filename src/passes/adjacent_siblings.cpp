#include "passes/adjacent_siblings.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "passes/siblings.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::Value;

/// What a kernel could compute with the value.
std::unordered_set<const Node*> functions_of(const Value& value) {
  std::unordered_set<const Node*> found;
  std::vector<const Value*> todo{&value};
  while (!todo.empty()) {
    const auto* at = todo.back();
    todo.pop_back();
    for (const auto* user : at->users()) {
      const auto kind = ir::kind_of(user->op());
      if (kind != ir::OpKind::pointwise && kind != ir::OpKind::view) continue;
      if (!found.insert(user).second) continue;
      for (const auto& output : user->outputs()) todo.push_back(output.get());
    }
  }
  return found;
}

bool any_meet(const std::vector<Sibling>& siblings) {
  std::unordered_set<const Node*> seen;
  for (const auto& each : siblings)
    for (const auto* node : functions_of(each.result()))
      if (!seen.insert(node).second) return true;
  return false;
}

/// What adapters of a training step add to a product they add in its own memory, which columns of a wider one
/// do not have to themselves.
bool is_added_to(const Value& value) {
  return std::ranges::any_of(value.users(), [](const Node* user) {
    if (ir::is_reshape(*user)) return is_added_to(user->output());
    return user->op() == "aten::add.Tensor" || user->op() == "graft::low_rank_add";
  });
}

/// What it was before it was reshaped.
const Value& reshaped(const Value& value) {
  const auto* node = value.producer();
  return node && ir::is_reshape(*node) ? reshaped(*ir::value_of(*node, "self")) : value;
}

/// The adapters that alone read a product, if all they need is there before it.
Node* adapters_of(const Sibling& sibling) {
  const auto* value = &sibling.product->output();
  while (value->users().size() == 1 && ir::is_reshape(*value->users().front()))
    value = &value->users().front()->output();
  if (value->users().size() != 1 || value->type() != sibling.product->output().type()) return nullptr;
  auto* add = value->users().front();
  if (add->op() != "graft::low_rank_add" || add->argument("places")) return nullptr;
  const auto* x = ir::value_of(*add, "x");
  const bool fits = ir::value_of(*add, "self") == value && x->type() == sibling.x->type() &&
                    &reshaped(*x) == &reshaped(*sibling.x) &&
                    std::ranges::all_of(add->inputs(), [&](const Value* each) {
                      return !each->producer() || each == value || each == x;
                    });
  return fits ? add : nullptr;
}

/// The products with these weights that have one x, of those that follow each other.
std::vector<std::vector<Sibling>> families_of(ir::Graph& graph, const std::vector<size_t>& neighbours) {
  std::vector<std::vector<Sibling>> families;
  std::map<const Value*, size_t> last;          // by x: the family that may go on
  std::map<const Value*, const Value*> tables;  // by x: the adapters' routing table
  std::map<const Value*, size_t> after;         // by x: the neighbour that it ended with
  for (size_t n = 0; n < neighbours.size(); ++n) {
    const auto& weight = *graph.inputs()[neighbours[n]];
    for (const auto* turn : weight.users())
      if (turn->op() == "aten::t")
        for (auto* user : turn->output().users()) {
          auto sibling = sibling_of(*user);
          if (!sibling || sibling->weight != &weight) continue;
          sibling->adapters = adapters_of(*sibling);
          if (!can_be_columns(*sibling, graph) || is_added_to(sibling->result())) continue;
          const auto* x = sibling->x;
          const auto* table = sibling->adapters ? ir::value_of(*sibling->adapters, "table") : nullptr;
          const bool one_table = !table || !tables[x] || tables[x] == table;
          if (table) tables[x] = table;
          if (!last.contains(x) || after[x] + 1 != n || !one_table) {
            last[x] = families.size();
            families.emplace_back();
          }
          families[last[x]].push_back(*sibling);
          after[x] = n;
        }
  }
  return families;
}

}  // namespace

void join_adjacent_siblings(ir::Graph& graph, const Neighbours& neighbours,
                            const std::function<int64_t(ir::DType)>& rows_of_a_kernel) {
  for (const auto& group : neighbours)
    for (auto& family : families_of(graph, group)) {
      if (family.size() < 2) continue;
      const auto& x = family.front().x->type();
      const bool is_kernel = x.sizes[0] <= rows_of_a_kernel(x.dtype);
      if (is_kernel && any_meet(family)) continue;
      ir::ValueList rows;
      for (const auto& each : family) rows.push_back(each.weight);
      join(graph, family, "graft::side_by_side", rows);
    }
}

}  // namespace graft::passes
