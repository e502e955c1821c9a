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

/// Of matrices that are reshapes of one value the first: each layer makes its own before equal ones are
/// merged.
class Matrices {
 public:
  const Value* first_like(const Value& x) {
    auto& known = by_root_[&reshaped(x)];
    const auto found = std::ranges::find(known, x.type(), [](const Value* each) { return each->type(); });
    return found != known.end() ? *found : known.emplace_back(&x);
  }

 private:
  std::map<const Value*, std::vector<const Value*>> by_root_;
};

/// The products with these weights that have one x, of those that follow each other.
std::vector<std::vector<Sibling>> families_of(ir::Graph& graph, const std::vector<size_t>& neighbours) {
  Matrices matrices;
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
          const auto* x = matrices.first_like(*sibling->x);
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

/// Whether the products become kernels, which take in what is done with their results.
bool are_kernels(const std::vector<Sibling>& family, const RowsOfAKernel& rows_of_a_kernel) {
  const auto& x = family.front().x->type();
  return x.sizes[0] <= rows_of_a_kernel(x.dtype);
}

/// Whether the kernel of a product would also compute what is done with it: something for each element at its
/// own place. Where parts of it move (rotations of queries and keys), it is stored in any case.
bool has_function_of_its_own(const Value& product) {
  bool found = false;
  std::vector<const Value*> todo{&product};
  while (!todo.empty()) {
    const auto* at = todo.back();
    todo.pop_back();
    for (const auto* user : at->users()) {
      const auto kind = ir::kind_of(user->op());
      found = found || kind == ir::OpKind::pointwise;
      if (kind != ir::OpKind::view) continue;
      if (user->output().type().numel() != product.type().numel()) return false;
      todo.push_back(&user->output());
    }
  }
  return found;
}

/// Of one kernel for each product, with its function, there is one for all products and one for each
/// function.
bool are_fewer_kernels(const std::vector<Sibling>& family) {
  const auto functions = std::ranges::count_if(
      family, [](const auto& each) { return !each.adapters && has_function_of_its_own(each.result()); });
  return 1 + static_cast<size_t>(functions) < family.size();
}

void join_families(ir::Graph& graph, const Neighbours& neighbours,
                   const std::function<bool(const std::vector<Sibling>&)>& is_worth_it) {
  for (const auto& group : neighbours)
    for (const auto& family : families_of(graph, group)) {
      if (family.size() < 2 || !is_worth_it(family)) continue;
      ir::ValueList rows;
      for (const auto& each : family) rows.push_back(each.weight);
      join(graph, family, "graft::side_by_side", rows);
    }
}

}  // namespace

void join_few_row_siblings(ir::Graph& graph, const Neighbours& neighbours,
                           const RowsOfAKernel& rows_of_a_kernel) {
  join_families(graph, neighbours, [&](const auto& family) {
    return ir::is_half(family.front().x->type().dtype) && are_kernels(family, rows_of_a_kernel) &&
           !any_meet(family) && are_fewer_kernels(family);
  });
}

void join_adjacent_siblings(ir::Graph& graph, const Neighbours& neighbours,
                            const RowsOfAKernel& rows_of_a_kernel) {
  join_families(graph, neighbours, [&](const auto& family) {
    return !are_kernels(family, rows_of_a_kernel) || !any_meet(family);
  });
}

}  // namespace graft::passes
