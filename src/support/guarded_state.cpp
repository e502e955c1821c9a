#include "support/guarded_state.h"

#include <algorithm>
#include <utility>

namespace graft {
namespace {
thread_local StateReads* collector = nullptr;
}

void StateVersion::changed() {
  const std::lock_guard<std::mutex> lock(guard_);
  if (collector) collector->will_change(weak_from_this().lock());
  known_.clear();
  value_.store(next_++, std::memory_order_release);
}

void StateVersion::becomes(const std::string& description) {
  const std::lock_guard<std::mutex> lock(guard_);
  const auto [known, is_new] = known_.try_emplace(description, next_);
  if (is_new) ++next_;
  if (collector) collector->will_change(weak_from_this().lock());
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

std::vector<StateRead> StateReads::reads() const {
  std::vector<StateRead> all;
  for (auto read : reads_) {
    for (const auto& change : changes_)
      if (change.state == read.state) read.value = change.before;
    const bool known = std::any_of(all.begin(), all.end(), [&](const StateRead& each) {
      return each.state == read.state && each.what == read.what && each.value == read.value;
    });
    if (!known) all.push_back(std::move(read));
  }
  return all;
}

void StateReads::will_change(const std::shared_ptr<const GuardedState>& state) {
  const bool known =
      std::any_of(changes_.begin(), changes_.end(), [&](const Change& each) { return each.state == state; });
  if (state && !known) changes_.push_back({state, state->value()});
}

bool StateReads::left_changed() const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [](const Change& each) { return each.state->value() != each.before; });
}

StateReads* StateReads::active() { return collector; }
StateReads::StateReads() : before_(std::exchange(collector, this)) {}
StateReads::~StateReads() { collector = before_; }

void read_state(const std::shared_ptr<const GuardedState>& state, const char* what, const void* module) {
  if (auto* reads = StateReads::active()) reads->add({state, state->value(), what, module});
}

}  // namespace graft
