#include "capture/hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "capture/reveal.h"

namespace graft {

struct EdgesTag {
  using type = torch::autograd::edge_list torch::autograd::Node::*;
  friend type reveal(EdgesTag);
};
template struct Reveal<EdgesTag, &torch::autograd::Node::next_edges_>;

/// Taken out of their places for a while: those of one node, or of a tensor that has none.
struct BackwardEndsAt::Saved {
  template <class T>
  struct Part {
    T* place = nullptr;
    T kept = {};
    explicit Part(T* p) : place(p) { swap(); }
    void swap() {
      if (place) std::swap(*place, kept);
    }
  };
  at::Tensor tensor;  // keeps the places
  Part<std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>> hooks;
  Part<std::unordered_map<size_t, std::unique_ptr<torch::autograd::FunctionPreHook>>> retained;
  Part<torch::autograd::edge_list> edges;
};

BackwardEndsAt::BackwardEndsAt(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<const torch::autograd::Node*> seen;
  for (const auto& tensor : tensors) {
    const auto& node = tensor.grad_fn();
    if (node && !seen.insert(node.get()).second) continue;  // several results of one
    auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (!node && (!meta || meta->hooks_.empty())) continue;
    saved_.push_back(
        std::make_unique<Saved>(Saved{tensor, Saved::Part(node ? &node->tensor_pre_hooks() : &meta->hooks_),
                                      Saved::Part(node ? &node->retains_grad_hooks() : nullptr),
                                      Saved::Part(node ? &(node.get()->*reveal(EdgesTag{})) : nullptr)}));
  }
}

BackwardEndsAt::~BackwardEndsAt() {
  for (const auto& saved : saved_) {
    saved->hooks.swap();
    saved->retained.swap();
    saved->edges.swap();
  }
}

namespace {

/// The nodes that tensors were computed by, from a number on, each after those that it leads to.
std::vector<torch::autograd::Node*> nodes_since(const std::vector<at::Tensor>& tensors, uint64_t since) {
  std::vector<torch::autograd::Node*> found, waiting;
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node && node->sequence_nr() >= since && seen.insert(node).second) waiting.push_back(node);
  };
  for (const auto& tensor : tensors)
    visit(tensor.defined() ? const_cast<torch::autograd::Node*>(history_of(tensor)) : nullptr);
  while (!waiting.empty()) {
    auto* node = waiting.back();
    waiting.pop_back();
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(node)) continue;
    found.push_back(node);
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  std::ranges::sort(found, {}, [](const auto* node) { return node->sequence_nr(); });
  return found;
}

}  // namespace

void forget_leaves(std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& leaves, uint64_t since) {
  std::unordered_set<const c10::TensorImpl*> gone;
  for (const auto& leaf : leaves) gone.insert(leaf.unsafeGetTensorImpl());
  std::unordered_set<const torch::autograd::Node*> dead;
  const auto leads_nowhere = [&](const torch::autograd::Edge& edge) {
    if (!edge.is_valid()) return true;
    if (const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get()))
      return gone.contains(end->variable.unsafeGetTensorImpl());
    return dead.contains(edge.function.get());
  };
  for (auto* node : nodes_since(tensors, since)) {
    auto& edges = node->*reveal(EdgesTag{});
    bool any = false;
    for (auto& edge : edges)
      if (leads_nowhere(edge))
        edge = torch::autograd::Edge();
      else
        any = true;
    if (!any) dead.insert(node);
  }
  for (auto& tensor : tensors) {
    if (!tensor.defined() || !dead.contains(history_of(tensor))) continue;
    if (tensor.is_view())
      tensor = tensor.detach();
    else
      tensor.detach_();
  }
}

std::vector<std::vector<bool>> leaves_reached(const std::vector<at::Tensor>& roots,
                                              const std::vector<at::Tensor>& leaves) {
  using torch::autograd::Edge;
  using torch::autograd::impl::gradient_edge;
  std::unordered_multimap<Edge, size_t> ends;
  for (size_t i = 0; i < leaves.size(); ++i) ends.emplace(gradient_edge(leaves[i]), i);
  std::vector<std::vector<bool>> reached;
  for (const auto& root : roots) {
    auto& mine = reached.emplace_back(leaves.size(), false);
    std::unordered_set<const torch::autograd::Node*> seen;
    std::vector<Edge> waiting{gradient_edge(root)};
    while (!waiting.empty()) {
      const auto edge = std::move(waiting.back());
      waiting.pop_back();
      if (!edge.is_valid()) continue;
      const auto [begin, end] = ends.equal_range(edge);
      for (auto leaf = begin; leaf != end; ++leaf) mine[leaf->second] = true;
      if (!seen.insert(edge.function.get()).second) continue;
      waiting.insert(waiting.end(), edge.function->next_edges().begin(), edge.function->next_edges().end());
    }
  }
  return reached;
}

size_t marks_of(const std::vector<at::Tensor>& tensors) {
  size_t marks = 0;
  for (const auto& tensor : tensors) {
    const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (!meta) continue;
    marks += meta->hooks_.size() + (meta->cpp_hooks_list_ ? meta->cpp_hooks_list_->size() : 0) +
             (meta->post_acc_grad_hooks_ ? 1 : 0) + (tensor.retains_grad() ? 1 : 0);
  }
  return marks;
}

const torch::autograd::Node* history_of(const at::Tensor& tensor) {
  try {
    return tensor.grad_fn().get();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

}  // namespace graft
