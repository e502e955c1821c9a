#include "generation/all_ended.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace graft::generation {

bool AllEnded::Answer::get() {
  if (there) there->synchronize();
  return *host.const_data_ptr<bool>();
}

AllEnded::Answer AllEnded::ask(const at::Tensor& ended) {
  const auto all = ended.all();
  if (all.is_cpu()) return {all, std::nullopt};
  const auto device = all.device();
  Answer answer{at::empty({}, at::dtype(at::kBool).pinned_memory(true)), c10::Event(device.type())};
  answer.host.copy_(all, /*non_blocking=*/true);
  answer.there->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return answer;
}

bool AllEnded::after(const at::Tensor& ended) {
  if (!late_) return ended.all().item<bool>();
  auto before = std::exchange(before_, ask(ended));
  return before && before->get();
}

}  // namespace graft::generation
