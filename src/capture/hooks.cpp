#include "capture/hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace graft {
namespace {

using Hooks = std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>;

}  // namespace

struct WithoutHooks::Saved {
  at::Tensor tensor;
  Hooks* place;
  Hooks hooks;
  std::unordered_map<size_t, std::unique_ptr<torch::autograd::FunctionPreHook>>* retained_place = nullptr;
  std::unordered_map<size_t, std::unique_ptr<torch::autograd::FunctionPreHook>> retained = {};
};

WithoutHooks::WithoutHooks(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    const auto& node = tensor.grad_fn();
    auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    auto* place = node ? &node->tensor_pre_hooks() : meta ? &meta->hooks_ : nullptr;
    auto* retained = node ? &node->retains_grad_hooks() : nullptr;
    if ((!place || place->empty()) && (!retained || retained->empty())) continue;
    auto saved = std::make_unique<Saved>(Saved{tensor, place, {}, retained, {}});
    std::swap(saved->hooks, *place);
    if (retained) std::swap(saved->retained, *retained);
    saved_.push_back(std::move(saved));
  }
}

WithoutHooks::~WithoutHooks() {
  for (const auto& saved : saved_) {
    std::swap(saved->hooks, *saved->place);
    if (saved->retained_place) std::swap(saved->retained, *saved->retained_place);
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
