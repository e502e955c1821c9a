#include "runtime/training_watch.h"

#include <mutex>
#include <unordered_map>

namespace graft::runtime {
namespace {

struct Watched {
  c10::weak_intrusive_ptr<at::TensorImpl> tensor;  // not another one at the same address
  std::shared_ptr<std::atomic<bool>> trained;
};

}  // namespace

std::shared_ptr<const std::atomic<bool>> watch_for_gradients(const at::Tensor& leaf) {
  static std::mutex guard;
  static std::unordered_map<const at::TensorImpl*, Watched> all;
  const std::lock_guard<std::mutex> lock(guard);
  std::erase_if(all, [](const auto& entry) { return entry.second.tensor.expired(); });
  const auto* key = leaf.unsafeGetTensorImpl();
  if (const auto found = all.find(key); found != all.end()) return found->second.trained;
  const auto trained = std::make_shared<std::atomic<bool>>(false);
  leaf.register_hook([trained](const at::Tensor&) { *trained = true; });
  all.emplace(key, Watched{c10::weak_intrusive_ptr<at::TensorImpl>(leaf.getIntrusivePtr()), trained});
  return trained;
}

}  // namespace graft::runtime
