#include "capture/saved_storages.h"

#include <ATen/ATen.h>

#include "capture/call_watcher.h"
#include "capture/ivalue.h"

namespace graft {

void SavedStorages::save(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !storage_of(tensor)) return;
  const auto [place, is_new] = saved_.try_emplace(storage_of(tensor));
  if (!is_new) return;
  const UnrecordedCalls aside;
  const auto size = static_cast<int64_t>(tensor.storage().nbytes());
  auto bytes = at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
                   .set_(tensor.storage(), 0, {size}, {1});
  auto before = bytes.clone();
  place->second = {std::move(bytes), std::move(before)};
}

void SavedStorages::restore() const {
  const UnrecordedCalls aside;
  for (const auto& [storage, saved] : saved_) saved.bytes.copy_(saved.before);
}

}  // namespace graft
