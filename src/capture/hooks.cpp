#include "capture/hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

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
