#include "autograd/partition.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "autograd/saved_values.h"
#include "graft/error.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "ir/verifier.h"

namespace graft::autograd {
namespace {

using ir::Node;
using ir::Value;

/// A graph under construction, and what its values stand for in the joint graph.
class Copy {
 public:
  void add_input(const Value& of, std::string name) {
    stands_for_[&of] = &graph.add_input(std::move(name), of.type());
  }
  bool has(const Value& value) const { return stands_for_.contains(&value); }
  Value* at(const Value* value) const { return value ? stands_for_.at(value) : nullptr; }

  void add_call(const Node& node) { ir::copy_node(node, graph, stands_for_); }

  ir::Graph graph;

 private:
  ir::ValueMap stands_for_;
};

class Partitioner {
 public:
  Partitioner(const ir::Graph& joint, size_t forward_results, const std::vector<size_t>& tangent_inputs,
              const PartitionOptions& options)
      : joint_(joint), forward_results_(forward_results), tangent_inputs_(tangent_inputs), options_(options) {
    for (const auto& node : joint.nodes()) {
      place_.emplace(node.get(), nodes_.size());
      nodes_.push_back(node.get());
    }
  }

  Partition run() {
    check();
    chosen_ = choose_saved_values(joint_, forward_results_, tangent_inputs_, options_);
    find_forward_calls();
    Partition made;
    build_forward(made);
    build_backward(made);
    made.saved = chosen_.saved.size();
    for (const auto* value : chosen_.saved) made.saved_bytes += value->type().bytes();
    for (size_t i = 0; i < nodes_.size(); ++i) made.recomputed += runs_again(i);
    find_what_is_read_again(made);
    ir::verify(made.forward);
    ir::verify(made.backward);
    return made;
  }

 private:
  bool runs_again(size_t at) const {
    return in_forward_[at] && chosen_.in_backward[at] && ir::kind_of(nodes_[at]->op()) != ir::OpKind::view;
  }

  void find_what_is_read_again(Partition& made) const {
    std::vector<const Value*> inputs = chosen_.saved;
    for (const size_t i : made.backward_inputs) inputs.push_back(joint_.inputs()[i].get());
    const std::unordered_set<const Value*> ends(inputs.begin(), inputs.end());
    std::unordered_set<const Value*> read;
    // Backwards, so that a view is known to be read when its turn comes.
    for (size_t i = nodes_.size(); i-- > 0;) {
      const bool reads = runs_again(i) || (ir::kind_of(nodes_[i]->op()) == ir::OpKind::view &&
                                           read.contains(&nodes_[i]->output()));
      if (reads &&
          std::ranges::none_of(nodes_[i]->outputs(), [&](const auto& v) { return ends.contains(v.get()); }))
        for (const auto* input : nodes_[i]->inputs()) read.insert(input);
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (read.contains(inputs[i])) made.read_again.push_back(i);
  }

  void check() const {
    const auto refuse = [](const std::string& why) { throw UsageError("[autograd] " + why); };
    if (forward_results_ > joint_.results().size())
      refuse("the joint graph has " + std::to_string(joint_.results().size()) + " results, and " +
             std::to_string(forward_results_) + " are said to be the forward's");
    for (const auto* list : {&tangent_inputs_, &options_.mutated_inputs}) {
      std::unordered_set<size_t> seen;
      for (const size_t i : *list) {
        if (i >= joint_.inputs().size()) refuse("the joint graph has no input " + std::to_string(i));
        if (!seen.insert(i).second) refuse("input " + std::to_string(i) + " is listed twice");
      }
    }
    for (const size_t i : options_.mutated_inputs)
      if (is_tangent(i)) refuse("input " + std::to_string(i) + " is a tangent, and cannot be mutated");
  }

  bool is_tangent(size_t input) const {
    return std::ranges::find(tangent_inputs_, input) != tangent_inputs_.end();
  }

  /// What the forward's results, the saved values and what must run there depend on.
  void find_forward_calls() {
    in_forward_.assign(nodes_.size(), false);
    std::unordered_set<const Value*> needed(chosen_.saved.begin(), chosen_.saved.end());
    for (size_t i = 0; i < forward_results_; ++i) needed.insert(joint_.results()[i]);
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = *nodes_[i];
      const bool must = ir::must_run(node) && !chosen_.in_backward[i];
      if (!must &&
          std::ranges::none_of(node.outputs(), [&](const auto& v) { return needed.contains(v.get()); }))
        continue;
      in_forward_[i] = true;
      for (const auto* input : node.inputs()) needed.insert(input);
    }
    for (const auto& input : joint_.inputs())
      if (needed.contains(input.get())) forward_uses_.insert(input.get());
  }

  void build_forward(Partition& made) const {
    Copy copy;
    for (size_t i = 0; i < joint_.inputs().size(); ++i)
      if (forward_uses_.contains(joint_.inputs()[i].get())) {
        made.forward_inputs.push_back(i);
        copy.add_input(*joint_.inputs()[i], joint_.input_name(i));
      }
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (in_forward_[i]) copy.add_call(*nodes_[i]);
    for (size_t i = 0; i < forward_results_; ++i) copy.graph.add_result(copy.at(joint_.results()[i]));
    for (const auto* value : chosen_.saved)
      copy.graph.add_result(value->producer() ? copy.at(value) : &cloned(copy, *value));
    made.forward = std::move(copy.graph);
  }

  /// A mutated input: its memory will have other contents when the backward runs.
  Value& cloned(Copy& copy, const Value& input) const {
    if (!input.type().is_dense())
      throw UsageError(
          "[autograd] input " + std::to_string(input.index()) + " \"" + joint_.input_name(input.index()) +
          "\" is mutated, the backward needs its old contents, and its memory has gaps or overlaps; "
          "make it contiguous first");
    auto& clone = copy.graph.add_node(
        "aten::clone", {{"self", copy.at(&input)}, {"memory_format", ir::Attribute(ir::None{})}},
        {input.type()});
    return clone.output();
  }

  /// The calls that make the values, and what those need, in order and without what is there already.
  std::vector<size_t> missing_calls(std::vector<const Value*> values, const Copy& copy) const {
    std::vector<size_t> missing;
    std::unordered_set<const Node*> seen;
    while (!values.empty()) {
      const Value* value = values.back();
      values.pop_back();
      if (!value || copy.has(*value) || !value->producer() || !seen.insert(value->producer()).second)
        continue;
      missing.push_back(place_.at(value->producer()));
      for (const auto* input : value->producer()->inputs()) values.push_back(input);
    }
    std::ranges::sort(missing);
    return missing;
  }

  /// The joint inputs that the backward takes as they are.
  std::vector<size_t> inputs_of_backward(const Copy& copy) const {
    std::unordered_set<const Value*> used(
        joint_.results().begin() + static_cast<std::ptrdiff_t>(forward_results_), joint_.results().end());
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (chosen_.in_backward[i])
        for (const auto* input : nodes_[i]->inputs()) used.insert(input);
    std::vector<size_t> direct;
    for (size_t i = 0; i < joint_.inputs().size(); ++i) {
      const Value& input = *joint_.inputs()[i];
      if (used.contains(&input) && !copy.has(input) && !is_tangent(i)) direct.push_back(i);
    }
    return direct;
  }

  void build_backward(Partition& made) const {
    Copy copy;
    for (size_t i = 0; i < chosen_.saved.size(); ++i)
      copy.add_input(*chosen_.saved[i], "saved." + std::to_string(i));
    made.backward_inputs = inputs_of_backward(copy);
    const auto take = [&](size_t i) { copy.add_input(*joint_.inputs()[i], joint_.input_name(i)); };
    std::ranges::for_each(made.backward_inputs, take);
    std::ranges::for_each(tangent_inputs_, take);

    const auto add = [&](std::vector<const Value*> needed) {
      for (const size_t i : missing_calls(std::move(needed), copy)) copy.add_call(*nodes_[i]);
    };
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!chosen_.only_backward[i]) continue;  // anything else comes with its first use
      const auto inputs = nodes_[i]->inputs();
      add({inputs.begin(), inputs.end()});
      copy.add_call(*nodes_[i]);
    }
    const auto& results = joint_.results();
    for (size_t i = forward_results_; i < results.size(); ++i) {
      add({results[i]});
      copy.graph.add_result(copy.at(results[i]));
    }
    made.backward = std::move(copy.graph);
  }

  const ir::Graph& joint_;
  const size_t forward_results_;
  const std::vector<size_t>& tangent_inputs_;
  const PartitionOptions& options_;
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, size_t> place_;
  SavedValues chosen_;
  std::vector<bool> in_forward_;
  std::unordered_set<const Value*> forward_uses_;
};

}  // namespace

Partition partition(const ir::Graph& joint, size_t forward_results, const std::vector<size_t>& tangent_inputs,
                    const PartitionOptions& options) {
  return Partitioner(joint, forward_results, tangent_inputs, options).run();
}

}  // namespace graft::autograd
