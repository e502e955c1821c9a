#include "autograd/node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <numeric>

#include "graft/error.h"

namespace graft {
namespace {

class CompiledBackward : public torch::autograd::Node {
 public:
  CompiledBackward(torch::autograd::edge_list&& edges, BackwardPass backward)
      : Node(std::move(edges)), backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override {
    // The result would carry no history, and second derivatives would silently be zero.
    if (at::GradMode::is_enabled())
      throw Error(
          "[autograd] a compiled function cannot be differentiated twice (create_graph=true): use the eager "
          "function for this");
    // As eager does, what was saved goes while the gradients come, unless the graph is kept for another time.
    return backward_(tangents, !torch::autograd::get_current_graph_task_keep_graph());
  }
  std::string name() const override { return "CompiledBackward"; }

 private:
  BackwardPass backward_;
};

/// Passes a gradient on. It knows the outputs that its own is computed from, so that autograd comes by here
/// when somebody wants a gradient by one of those.
class OutputNode : public torch::autograd::Node {
 public:
  explicit OutputNode(torch::autograd::edge_list&& edges) : Node(std::move(edges)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override {
    for (size_t i = 1; i < num_outputs(); ++i)
      if (is_asked_for(*next_edge(i).function))
        throw Error(
            "[autograd] the gradient by an output of a compiled function that another of its outputs is "
            "computed from is asked for (a hook, retain_grad or grad()): compiled code does not have it. "
            "Use the eager function for this, or give back only one of the two");
    torch::autograd::variable_list passed(num_outputs());
    passed[0] = std::move(tangents[0]);
    return passed;
  }
  std::string name() const override { return "CompiledOutput"; }

 private:
  static bool is_asked_for(torch::autograd::Node& node) {
    if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty() ||
        !node.post_hooks().empty())
      return true;
    const auto* tasks = torch::autograd::get_current_graph_task_exec_info();
    if (!tasks) return false;
    const auto found = tasks->find(&node);
    return found != tasks->end() && found->second.captures_ && !found->second.captures_->empty();
  }
};

// torch 2.13 counts nodes' owners itself, before it was std::shared_ptr: take whichever an edge holds.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class Made, class Pointer = NodePointer, class... Args>
Pointer make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Made>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<Made>(std::forward<Args>(args)...);
}

}  // namespace

void connect(const std::vector<at::Tensor>& outputs, const std::vector<std::vector<size_t>>& computed_from,
             const std::vector<at::Tensor>& inputs, BackwardPass backward) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const auto& input : inputs)
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
  const auto node = make_node<CompiledBackward>(std::move(edges), std::move(backward));
  std::vector<bool> is_source(outputs.size(), false);
  for (const auto& sources : computed_from)
    for (const size_t source : sources) is_source[source] = true;
  std::vector<NodePointer> made(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto number = node->add_input_metadata(outputs[i]);
    if (computed_from[i].empty() && !is_source[i]) {
      torch::autograd::impl::set_gradient_edge(outputs[i], {node, number});
      continue;
    }
    made[i] = make_node<OutputNode>(torch::autograd::edge_list{{node, number}});
    torch::autograd::set_history(outputs[i], made[i]);
  }
  // Torch wants a node's edges before the node is the end of another's. What an output is computed from is
  // computed from less than it is.
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return computed_from[a].size() < computed_from[b].size(); });
  for (const size_t i : order)
    for (const size_t source : computed_from[i]) made[i]->add_next_edge({made[source], 0});
}

}  // namespace graft
