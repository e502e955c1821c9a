#include "support/guarded_state.h"

#include <algorithm>
#include <utility>

namespace graft {
namespace {
thread_local StateReads* collector = nullptr;
}

void StateVersion::changed() {
  const std::lock_guard<std::mutex> lock(guard_);
  known_.clear();
  value_.store(next_++, std::memory_order_release);
}

void StateVersion::becomes(const std::string& description) {
  const std::lock_guard<std::mutex> lock(guard_);
  const auto [known, is_new] = known_.try_emplace(description, next_);
  if (is_new) ++next_;
  value_.store(known->second, std::memory_order_release);
}

void StateReads::add(StateRead read) {
  // A layer asks again for each of its parts: the last ones are the likely ones.
  const bool known = std::any_of(reads_.rbegin(), reads_.rend(), [&](const StateRead& each) {
    const bool same = each.state == read.state || (read.module && each.module == read.module);
    return same && each.what == read.what && each.value == read.value;
  });
  if (!known) reads_.push_back(std::move(read));
}

StateReads* StateReads::active() { return collector; }
StateReads::StateReads() : before_(std::exchange(collector, this)) {}
StateReads::~StateReads() { collector = before_; }

void read_state(const std::shared_ptr<const GuardedState>& state, const char* what, const void* module) {
  if (auto* reads = StateReads::active()) reads->add({state, state->value(), what, module});
}

}  // namespace graft
