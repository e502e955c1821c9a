#include "capture/other_threads.h"

#include <algorithm>
#include <vector>

#include "capture/ivalue.h"
#include "capture/op_facts.h"

namespace graft {
namespace {

/// torch's callbacks are plain functions: they find who watches here.
std::mutex all_guard;
std::vector<OtherThreads*>& all() {
  static std::vector<OtherThreads*> watching;
  return watching;
}

}  // namespace

OtherThreads::OtherThreads() {
  {
    const std::lock_guard<std::mutex> lock(all_guard);
    all().push_back(this);
  }
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&OtherThreads::on_call)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

OtherThreads::~OtherThreads() {
  at::removeCallback(handle_);
  const std::lock_guard<std::mutex> lock(all_guard);
  std::erase(all(), this);
}

void OtherThreads::watch(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !storage_of(tensor)) return;
  const std::lock_guard<std::mutex> lock(guard_);
  storages_.try_emplace(storage_of(tensor), tensor.storage().getWeakStorageImpl());
}

std::unique_ptr<at::ObserverContext> OtherThreads::on_call(const at::RecordFunction& call) {
  const std::lock_guard<std::mutex> lock(all_guard);
  for (auto* watching : all())
    if (watching->own_ != std::this_thread::get_id()) watching->look_at(call);
  return nullptr;
}

void OtherThreads::look_at(const at::RecordFunction& call) {
  const std::lock_guard<std::mutex> lock(guard_);
  for (const auto& input : call.inputs())
    each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.layout() == at::kStrided && storages_.contains(storage_of(tensor)))
        took_one_ = true;
    });
}

}  // namespace graft
