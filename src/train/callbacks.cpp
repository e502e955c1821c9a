#include "train/callbacks.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::train {

void Callbacks::add(std::shared_ptr<TrainerCallback> callback) {
  if (!callback) throw UsageError("[train] add_callback() was given none");
  all_.push_back(std::move(callback));
}

void Callbacks::begin(const std::shared_ptr<ProcessGroup>& group) {
  control = {};
  const auto count = at::scalar_tensor(static_cast<int64_t>(all_.size()), at::kLong);
  group->all_reduce(count);
  group_ = group->size() > 1 && count.item<int64_t>() > 0 ? group : nullptr;
}

void Callbacks::agree() {
  if (!group_) return;
  bool* const shared[] = {&control.should_training_stop, &control.should_evaluate, &control.should_save};
  const auto asked = at::zeros({std::ssize(shared)}, at::kLong);
  for (int64_t i = 0; i < std::ssize(shared); ++i) asked[i] = *shared[i] ? 1 : 0;
  group_->all_reduce(asked);
  for (int64_t i = 0; i < std::ssize(shared); ++i) *shared[i] = asked[i].item<int64_t>() > 0;
}

}  // namespace graft::train
