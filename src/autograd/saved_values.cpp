#include "autograd/saved_values.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "autograd/max_flow.h"
#include "graft/error.h"
#include "ir/op_traits.h"

namespace graft::autograd {
namespace {

using ir::kind_of;
using ir::Node;
using ir::OpKind;
using ir::Value;

/// Saving a byte costs this much, and running again a call that makes one costs 1.
constexpr int64_t kSavingToRunning = 16;

bool is_one_of(OpKind kind, std::initializer_list<OpKind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

/// Whether one kernel can compute `producer` in passing while it computes `consumer`.
bool fuses(const Node& producer, const Node& consumer) {
  return is_one_of(kind_of(producer.op()),
                   {OpKind::pointwise, OpKind::view, OpKind::creation, OpKind::gather}) &&
         is_one_of(kind_of(consumer.op()),
                   {OpKind::pointwise, OpKind::reduction, OpKind::view, OpKind::creation, OpKind::gather});
}

/// Computed again from what was saved, and so rounded, its arguments may be other numbers than in the forward
/// part, which rounds nothing in between.
bool asks_for_exact_halves(const Node& node) { return !ir::exact_halves(node).empty(); }

bool is_free(const Node& node) { return is_one_of(kind_of(node.op()), {OpKind::view, OpKind::creation}); }

class Chooser {
 public:
  Chooser(const ir::Graph& joint, size_t forward_results, const std::vector<size_t>& tangent_inputs,
          const PartitionOptions& options)
      : joint_(joint), forward_results_(forward_results), options_(options) {
    for (const size_t i : tangent_inputs) tangents_.insert(joint.inputs()[i].get());
    for (const auto& node : joint.nodes()) {
      place_.emplace(node.get(), nodes_.size());
      nodes_.push_back(node.get());
    }
  }

  SavedValues run() {
    classify();
    return cut();
  }

 private:
  /// Marks the producers of the values, and theirs, and so on.
  void mark_needed(std::vector<const Value*> values, std::vector<bool>& marks) const {
    while (!values.empty()) {
      const Value* value = values.back();
      values.pop_back();
      if (!value || !value->producer()) continue;
      const size_t at = place_.at(value->producer());
      if (marks[at]) continue;
      marks[at] = true;
      for (const auto* input : nodes_[at]->inputs()) values.push_back(input);
    }
  }
  void mark_with_needs(size_t at, std::vector<bool>& marks) const {
    if (marks[at]) return;
    marks[at] = true;
    const auto inputs = nodes_[at]->inputs();
    mark_needed({inputs.begin(), inputs.end()}, marks);
  }

  /// Cheap in itself, wherever it stands. Reductions are not: they read much, and what they give is small.
  /// Nor is a copy from one device to another, nor what is a call of a library.
  bool is_cheap(const Node& node) const {
    if (ir::must_run(node)) return false;
    const auto inputs = node.inputs();
    if (std::ranges::any_of(inputs,
                            [&](const Value* v) { return v->type().device != node.output().type().device; }))
      return false;
    if (is_free(node)) return true;
    return is_one_of(kind_of(node.op()), {OpKind::pointwise, OpKind::gather}) &&
           !(options_.is_library_call && options_.is_library_call(node));
  }

  bool uses_backward_value(const Node& node) const {
    return std::ranges::any_of(node.inputs(), [&](const Value* v) {
      return v->producer() ? backward_[place_.at(v->producer())] : tangents_.contains(v);
    });
  }

  void classify() {
    const size_t count = nodes_.size();
    live_.assign(count, false);
    forward_.assign(count, false);
    backward_.assign(count, false);
    const auto& results = joint_.results();
    const auto middle = results.begin() + static_cast<std::ptrdiff_t>(forward_results_);
    mark_needed({results.begin(), results.end()}, live_);
    mark_needed({results.begin(), middle}, forward_);
    for (size_t i = 0; i < count; ++i) backward_[i] = uses_backward_value(*nodes_[i]);
    check_forward_results();

    // Calls that neither a forward result nor a tangent claims stand before or after this place.
    size_t after_forward = 0, first_backward = 0;
    for (size_t i = 0; i < count; ++i)
      if (forward_[i]) after_forward = i + 1;
    while (first_backward < count && !backward_[first_backward]) ++first_backward;
    const size_t boundary = first_backward == count ? after_forward : std::max(after_forward, first_backward);
    for (size_t i = 0; i < count; ++i) {
      if (!ir::must_run(*nodes_[i])) continue;
      mark_with_needs(i, live_);
      // Where a gradient is a tangent as it is, there is no backward part for it to stand in.
      if (!backward_[i] && (i < boundary || first_backward == count)) mark_with_needs(i, forward_);
    }
    // Those of them that are not cheap must not run twice, so they run where they stand, and what depends on
    // them runs after them.
    for (size_t i = boundary; i < count; ++i)
      backward_[i] = uses_backward_value(*nodes_[i]) || (live_[i] && !forward_[i] && !is_cheap(*nodes_[i]));
  }

  void check_forward_results() const {
    for (size_t i = 0; i < forward_results_; ++i) {
      const Value* value = joint_.results()[i];
      if (value && (value->producer() ? backward_[place_.at(value->producer())] : tangents_.contains(value)))
        throw UsageError("[autograd] forward result " + std::to_string(i) +
                         " depends on a tangent; forward and backward cannot be parted");
    }
  }

  /// True where a call of the backward reads it, or a view of it, from memory.
  bool is_materialized_in_backward(const Node& node) const {
    std::vector<const Node*> stack{&node};
    std::unordered_set<const Node*> seen{&node};
    while (!stack.empty()) {
      const Node* at = stack.back();
      stack.pop_back();
      for (const auto& output : at->outputs())
        for (const Node* user : output->users()) {
          const size_t place = place_.at(user);
          if (!live_[place]) continue;
          if (!forward_[place] && !fuses(*at, *user)) return true;
          if (kind_of(user->op()) == OpKind::view && seen.insert(user).second) stack.push_back(user);
        }
    }
    return false;
  }

  bool may_run_again(const Node& node) const {
    if (!is_cheap(node) || asks_for_exact_halves(node)) return false;
    if (is_free(node)) return true;
    return options_.recompute && (options_.recompute_materialized || !is_materialized_in_backward(node));
  }

  /// A result of the forward that the backward's own calls read, as it is or cast: the caller holds it as
  /// well, and eager saves it, too. (What others read, eager may not save, and the caller may write into it.)
  bool is_kept_anyway(const Value& value) const {
    const auto end = joint_.results().begin() + static_cast<std::ptrdiff_t>(forward_results_);
    return std::find(joint_.results().begin(), end, &value) != end && backward_reads(value);
  }
  bool backward_reads(const Value& value) const {
    return std::ranges::any_of(value.users(), [&](const Node* user) {
      return backward_[place_.at(user)] ||
             (user->op() == "aten::_to_copy" && !user->outputs().empty() && backward_reads(user->output()));
    });
  }

  static int64_t running_cost(const Value& value) {
    return std::min(value.type().bytes(), FlowNetwork::kUnlimited >> 12);
  }
  static int64_t saving_cost(const Value& value) { return kSavingToRunning * running_cost(value); }

  void number_values() {
    size_t next = 2 + nodes_.size();  // source, sink, calls, values
    const auto number = [&](const Value& value) { vertex_.emplace(&value, next++); };
    for (const auto& input : joint_.inputs()) number(*input);
    for (const Node* node : nodes_)
      for (const auto& output : node->outputs()) number(*output);
  }

  void add_call(FlowNetwork& network, size_t at) const {
    const Node& node = *nodes_[at];
    const size_t call = 2 + at;
    if (backward_[at]) {
      network.add_edge(call, kSink, FlowNetwork::kUnlimited);
    } else if (forward_[at] ? !may_run_again(node) : !is_cheap(node) || asks_for_exact_halves(node)) {
      network.add_edge(kSource, call, FlowNetwork::kUnlimited);
    } else if (forward_[at] &&
               !is_free(node)) {  // without the first condition it would not be the second run
      for (const auto& output : node.outputs()) network.add_edge(kSource, call, running_cost(*output));
    }
    const bool is_view = kind_of(node.op()) == OpKind::view;
    for (const auto& output : node.outputs())
      network.add_edge(call, vertex_.at(output.get()),
                       is_view                   ? FlowNetwork::kUnlimited
                       : is_kept_anyway(*output) ? running_cost(*output) / 2
                                                 : saving_cost(*output));
    for (const auto* input : node.inputs())
      network.add_edge(vertex_.at(input), call, FlowNetwork::kUnlimited);
  }

  SavedValues cut() {
    number_values();
    FlowNetwork network(2 + nodes_.size() + vertex_.size());
    for (const size_t i : options_.mutated_inputs) {
      const Value& input = *joint_.inputs()[i];
      network.add_edge(kSource, vertex_.at(&input), saving_cost(input));
    }
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (live_[i]) add_call(network, i);
    for (size_t i = forward_results_; i < joint_.results().size(); ++i)
      if (const Value* value = joint_.results()[i])
        network.add_edge(vertex_.at(value), kSink, FlowNetwork::kUnlimited);
    if (network.maximise(kSource, kSink) >= FlowNetwork::kUnlimited)
      throw std::logic_error("[autograd] a value can neither be saved nor computed again");
    return read(network.sink_side(kSink));
  }

  SavedValues read(const std::vector<bool>& behind) const {
    SavedValues chosen;
    std::unordered_set<size_t> mutated(options_.mutated_inputs.begin(), options_.mutated_inputs.end());
    for (size_t i = 0; i < joint_.inputs().size(); ++i) {
      const Value* input = joint_.inputs()[i].get();
      if (mutated.contains(i) && behind[vertex_.at(input)]) chosen.saved.push_back(input);
    }
    chosen.in_backward.resize(nodes_.size());
    chosen.only_backward.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      chosen.in_backward[i] = live_[i] && behind[2 + i];
      chosen.only_backward[i] = live_[i] && backward_[i];
      for (const auto& output : nodes_[i]->outputs())
        if (live_[i] && !behind[2 + i] && behind[vertex_.at(output.get())])
          chosen.saved.push_back(output.get());
    }
    return chosen;
  }

  static constexpr size_t kSource = 0, kSink = 1;

  const ir::Graph& joint_;
  const size_t forward_results_;
  const PartitionOptions& options_;
  std::unordered_set<const Value*> tangents_;
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, size_t> place_;
  std::unordered_map<const Value*, size_t> vertex_;
  // By place: used or must run; needed by a forward result, or must run in the forward; runs in the backward
  // and only there.
  std::vector<bool> live_, forward_, backward_;
};

}  // namespace

SavedValues choose_saved_values(const ir::Graph& joint, size_t forward_results,
                                const std::vector<size_t>& tangent_inputs, const PartitionOptions& options) {
  return Chooser(joint, forward_results, tangent_inputs, options).run();
}

}  // namespace graft::autograd
