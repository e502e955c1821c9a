#include "passes/weight_folding.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/clone.h"
#include "ir/op_traits.h"

namespace graft::passes {
namespace {

using ir::Node;
using ir::OpKind;
using ir::Value;

/// Becomes part of whatever kernel needs it, and costs little there.
bool is_light(OpKind kind) {
  return kind == OpKind::pointwise || kind == OpKind::view || kind == OpKind::creation;
}

/// Reads its arguments from memory: they have to be there.
bool reads_memory(OpKind kind) {
  return kind == OpKind::matmul || kind == OpKind::convolution || kind == OpKind::attention ||
         kind == OpKind::other;
}

class Cut {
 public:
  Cut(const ir::Graph& graph, const std::vector<size_t>& frozen) : graph_(graph) {
    for (const size_t i : frozen) fixed_.insert(graph.inputs()[i].get());
    // A caller may write into what it is given.
    for (const auto* result : graph.results())
      for (const auto* at = result; at; at = source_of_view(*at)) shown_.insert(at);
    for (const auto& node : graph.nodes()) see(*node);
  }

  /// The values to keep, in the graph's order.
  std::vector<const Value*> choose(int64_t budget) {
    for (;;) {
      auto chosen = exposed();
      int64_t bytes = 0, largest = 0;
      for (const auto* value : chosen)
        bytes += value->type().bytes(), largest = std::max(largest, value->type().bytes());
      if (bytes <= budget) return chosen;
      // All of that size: the layers of a model are treated alike.
      for (const auto* value : chosen)
        if (value->type().bytes() == largest) for_each_call_.insert(value->producer());
    }
  }

 private:
  static const Value* source_of_view(const Value& value) {
    const auto* node = value.producer();
    return node && ir::kind_of(node->op()) == OpKind::view ? node->inputs().front() : nullptr;
  }

  void see(const Node& node) {
    const auto inputs = node.inputs();
    const auto kind = ir::kind_of(node.op());
    const bool fixed = !ir::must_run(node) && kind != OpKind::random && kind != OpKind::attention &&
                       std::all_of(inputs.begin(), inputs.end(),
                                   [&](const Value* value) { return fixed_.contains(value); }) &&
                       std::none_of(node.outputs().begin(), node.outputs().end(),
                                    [&](const auto& output) { return shown_.contains(output.get()); });
    if (!fixed) return;
    for (const auto& output : node.outputs()) fixed_.insert(output.get());
    if (!is_light(kind) ||
        std::any_of(inputs.begin(), inputs.end(), [&](const Value* value) { return heavy_.contains(value); }))
      for (const auto& output : node.outputs()) heavy_.insert(output.get());
  }

  bool is_kept(const Node& node) const {
    return !node.outputs().empty() && fixed_.contains(&node.output()) && !for_each_call_.contains(&node);
  }

  /// What the call needs of what does not depend on it. Light work at the edge goes into the call's kernels.
  std::vector<const Value*> exposed() {
    std::vector<const Value*> found;
    for (auto at = graph_.nodes().rbegin(); at != graph_.nodes().rend(); ++at) {
      const auto& node = **at;
      if (node.outputs().empty() || !is_kept(node)) continue;
      std::vector<const Value*> seen;
      for (const auto& output : node.outputs())
        if (std::any_of(output->users().begin(), output->users().end(),
                        [&](const Node* user) { return user->outputs().empty() || !is_kept(*user); }))
          seen.push_back(output.get());
      if (seen.empty()) continue;
      if (is_worth_keeping(node))
        found.insert(found.end(), seen.begin(), seen.end());
      else
        for_each_call_.insert(&node);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  bool is_worth_keeping(const Node& node) const {
    const auto kind = ir::kind_of(node.op());
    if (!is_light(kind)) return true;
    if (kind != OpKind::pointwise) return false;
    if (is_read_from_memory(node.output())) return !widens_weight(node);
    int64_t read = 0;
    for (const auto* value : node.inputs()) read += value->type().bytes();
    return heavy_.contains(&node.output()) && node.output().type().bytes() <= read;
  }

  /// A weight that is stored in half precision was to be small: what is made of it for each call is cheap.
  bool widens_weight(const Node& node) const {
    if (node.op() != "aten::_to_copy") return false;
    const auto& source = *node.inputs().front();
    return !heavy_.contains(&source) && node.output().type().bytes() > source.type().bytes();
  }

  bool is_read_from_memory(const Value& value) const {
    return std::any_of(value.users().begin(), value.users().end(), [&](const Node* user) {
      const auto kind = ir::kind_of(user->op());
      if (kind == OpKind::view)
        return std::any_of(user->outputs().begin(), user->outputs().end(),
                           [&](const auto& output) { return is_read_from_memory(*output); });
      return !is_kept(*user) && reads_memory(kind);
    });
  }

  const ir::Graph& graph_;
  std::unordered_set<const Value*> fixed_, heavy_, shown_;
  std::unordered_set<const Node*> for_each_call_;
};

/// Values with a computation in common are of one group; what comes from no weight each has for itself.
class Groups {
 public:
  Groups(const ir::Graph& graph, const std::vector<const Value*>& kept) {
    for (const auto& node : graph.nodes()) {
      const auto inputs = node->inputs();
      if (std::any_of(inputs.begin(), inputs.end(), [&](const Value* value) {
            return !value->producer() || from_weights_.contains(value->producer());
          }))
        from_weights_.insert(node.get());
    }
    for (const auto* value : kept) {
      std::vector<const Node*> todo{value->producer()};
      std::unordered_set<const Node*> slice;
      while (!todo.empty()) {
        const auto* node = todo.back();
        todo.pop_back();
        if (!slice.insert(node).second) continue;
        for (const auto* input : node->inputs())
          if (input->producer()) todo.push_back(input->producer());
      }
      add(value, slice);
    }
  }

  struct Members {
    std::vector<const Value*> values;
    std::unordered_set<const Node*> nodes;
  };
  /// In the order of their first values.
  std::vector<Members> take() && {
    std::erase_if(all_, [](const Members& members) { return members.values.empty(); });
    return std::move(all_);
  }

 private:
  void add(const Value* value, const std::unordered_set<const Node*>& slice) {
    Members merged{{value}, slice};
    size_t place = all_.size();
    for (const auto* node : slice)
      if (const auto found = group_of_.find(node);
          found != group_of_.end() && !all_[found->second].values.empty()) {
        auto& other = all_[found->second];
        place = std::min(place, found->second);
        merged.values.insert(merged.values.end(), other.values.begin(), other.values.end());
        merged.nodes.insert(other.nodes.begin(), other.nodes.end());
        other = {};
      }
    if (place == all_.size()) all_.emplace_back();
    for (const auto* node : merged.nodes)
      if (from_weights_.contains(node)) group_of_[node] = place;
    all_[place] = std::move(merged);
  }

  std::vector<Members> all_;
  std::unordered_map<const Node*, size_t> group_of_;
  std::unordered_set<const Node*> from_weights_;
};

Folding::Group graph_of(const ir::Graph& whole, const Groups::Members& members,
                        const std::unordered_map<const Value*, size_t>& places) {
  Folding::Group group;
  ir::ValueMap map;
  for (const auto& node : whole.nodes()) {
    if (!members.nodes.contains(node.get())) continue;
    for (const auto* value : node->inputs())
      if (!map.contains(value)) {
        // No names: two groups are the same whatever their weights are called.
        map[value] = &group.graph.add_input("", value->type());
        group.inputs.push_back(value->index());
      }
    ir::copy_node(*node, group.graph, map).set_scope("");
  }
  for (const auto* value : members.values) {
    group.graph.add_result(map.at(value));
    group.results.push_back(places.at(value));
  }
  return group;
}

/// All but what only kept values need.
std::unordered_set<const Node*> nodes_of_main(const ir::Graph& graph,
                                              const std::unordered_map<const Value*, size_t>& kept) {
  std::unordered_set<const Node*> needed;
  std::vector<const Value*> todo;
  for (const auto* result : graph.results())
    if (result) todo.push_back(result);
  const auto need = [&](const Node& node) {
    if (!needed.insert(&node).second) return;
    for (const auto* input : node.inputs()) todo.push_back(input);
  };
  for (const auto& node : graph.nodes())
    if (ir::must_run(*node)) need(*node);
  while (!todo.empty()) {
    const auto* value = todo.back();
    todo.pop_back();
    if (value->producer() && !kept.contains(value)) need(*value->producer());
  }
  return needed;
}

}  // namespace

std::optional<Folding> fold_weights(const ir::Graph& graph, const std::vector<size_t>& frozen,
                                    int64_t percent) {
  int64_t bytes = 0;
  for (const size_t i : frozen) bytes += graph.inputs()[i]->type().bytes();
  const auto kept = Cut(graph, frozen).choose(bytes * percent / 100);
  if (kept.empty()) return std::nullopt;

  Folding folding;
  ir::ValueMap map;
  for (const auto& input : graph.inputs())
    map[input.get()] = &folding.main.add_input(graph.input_name(input->index()), input->type());
  std::unordered_map<const Value*, size_t> places;
  for (const auto* value : kept) {
    places[value] = folding.main.inputs().size();
    map[value] = &folding.main.add_input("kept." + std::to_string(value->id()), value->type());
  }
  const auto needed = nodes_of_main(graph, places);
  for (const auto& node : graph.nodes())
    if (needed.contains(node.get())) ir::copy_node(*node, folding.main, map);
  for (const auto* result : graph.results()) folding.main.add_result(result ? map.at(result) : nullptr);
  for (const auto& members : Groups(graph, kept).take())
    folding.groups.push_back(graph_of(graph, members, places));
  return folding;
}

}  // namespace graft::passes
