// Backward passes that are run aside, to see what they do: hooks of the caller's tensors are not for these.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace graft {

/// While one lives, backward passes end at these tensors (what they were computed by is another's business,
/// also where it leads to one of the others again) and run none of the hooks on them.
class BackwardEndsAt {
 public:
  explicit BackwardEndsAt(const std::vector<at::Tensor>& tensors);
  ~BackwardEndsAt();
  BackwardEndsAt(const BackwardEndsAt&) = delete;
  BackwardEndsAt& operator=(const BackwardEndsAt&) = delete;

 private:
  struct Saved;
  std::vector<std::unique_ptr<Saved>> saved_;
};

/// Takes leaves out of the histories of tensors, as far as these were made after the node of that number:
/// they are as if the leaves had not required gradients. What is left without a history has none.
void forget_leaves(std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& leaves, uint64_t since);

/// For each root, which of the leaves its history leads to.
std::vector<std::vector<bool>> leaves_reached(const std::vector<at::Tensor>& roots,
                                              const std::vector<at::Tensor>& leaves);

/// How many hooks there are on tensors, and how many of them keep their gradients.
size_t marks_of(const std::vector<at::Tensor>& tensors);

/// What a tensor was computed by, to tell whether that changes; null for leaves, and where torch refuses to
/// say (a view that was made without gradients, of what was changed since).
const torch::autograd::Node* history_of(const at::Tensor& tensor);

}  // namespace graft
