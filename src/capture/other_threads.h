// Whether other threads call operators on what a function computes, while it is recorded. Only the calls of
// its own thread are: what others compute, or read on the host, would be missing in the graph, and in a
// replay they would find a placeholder.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace graft {

class OtherThreads {
 public:
  OtherThreads();
  ~OtherThreads();
  OtherThreads(const OtherThreads&) = delete;
  OtherThreads& operator=(const OtherThreads&) = delete;

  /// Made by the function.
  void watch(const at::Tensor& tensor);
  bool took_one() const { return took_one_.load(std::memory_order_relaxed); }

 private:
  static std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& call);
  void look_at(const at::RecordFunction& call);

  at::CallbackHandle handle_;
  std::thread::id own_ = std::this_thread::get_id();
  std::atomic<bool> took_one_{false};
  std::mutex guard_;
  /// Weak owners keep the addresses from being used again.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

}  // namespace graft
