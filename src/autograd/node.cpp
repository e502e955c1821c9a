#include "autograd/node.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include "graft/error.h"

namespace graft {
namespace {

class CompiledBackward : public torch::autograd::Node {
 public:
  CompiledBackward(torch::autograd::edge_list&& edges, BackwardPass backward)
      : Node(std::move(edges)), backward_(std::move(backward)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override {
    if (!backward_)
      throw Error(
          "[autograd] backward through a compiled function a second time: its saved tensors are gone. Use "
          "retain_graph=true in the first backward");
    // The result would carry no history, and second derivatives would silently be zero.
    if (at::GradMode::is_enabled())
      throw Error(
          "[autograd] a compiled function cannot be differentiated twice (create_graph=true): use the eager "
          "function for this");
    // As eager does, what was saved goes while the gradients come, unless the graph is kept for another time.
    return backward_(tangents, !torch::autograd::get_current_graph_task_keep_graph());
  }
  void release_variables() override { backward_ = nullptr; }
  std::string name() const override { return "CompiledBackward"; }

 private:
  BackwardPass backward_;
};

// torch 2.13 counts nodes' owners itself, before it was std::shared_ptr: take whichever an edge holds.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class Pointer, class... Args>
Pointer make_node(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<CompiledBackward>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<CompiledBackward>(std::forward<Args>(args)...);
}

}  // namespace

void connect(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
             BackwardPass backward) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const auto& input : inputs) edges.push_back(torch::autograd::impl::gradient_edge(input));
  const auto node = make_node<NodePointer>(std::move(edges), std::move(backward));
  for (const auto& output : outputs) torch::autograd::set_history(output, node);
}

}  // namespace graft
