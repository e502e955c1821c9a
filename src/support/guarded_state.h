// State on the host that code reads while it is captured: which adapters work, what stands in a layer's
// place.
//
// A compiled program has the answer of the time when it was captured built in, so it serves a call only while
// the answer is the same. Code whose result depends on such a state says so by read_state(); whoever changes
// the state changes its version; the program guards on the versions that its capture has read. Code may
// change such a state for a while (adapters that are disabled for a part of the work): what it finds then
// follows from the state that it began with. A change that stays is an effect that a program would not have.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace graft {

/// Something whose state decides what code does. Owned by a shared_ptr: a guard may outlive what it is about.
class GuardedState {
 public:
  virtual ~GuardedState() = default;
  /// Equal for equal states.
  virtual uint64_t value() const = 0;
};

/// A state that its owner counts.
class StateVersion : public GuardedState, public std::enable_shared_from_this<StateVersion> {
 public:
  uint64_t value() const override { return value_.load(std::memory_order_acquire); }
  /// A state that was never there before.
  void changed();
  /// The state that `description` tells from all others. Equal descriptions are one state until changed() is
  /// called, so that programs for states that come back serve again.
  void becomes(const std::string& description);

 private:
  std::atomic<uint64_t> value_{0};
  std::mutex guard_;
  uint64_t next_ = 1;
  std::unordered_map<std::string, uint64_t> known_;
};

struct StateRead {
  std::shared_ptr<const GuardedState> state;
  uint64_t value;
  const char* what;  ///< for messages, lives forever, one for each kind: "the active adapters"
  /// The module whose structure or training flag this is, if any: who guards that module's tree guards this,
  /// too.
  const void* module;

  bool holds() const { return state->value() == value; }
};

/// Call it before the state itself is read: then a change in between is seen. Costs next to nothing where
/// nobody collects.
void read_state(const std::shared_ptr<const GuardedState>& state, const char* what,
                const void* module = nullptr);

/// Collects what this thread reads while one lives; the innermost gets it.
class StateReads {
 public:
  StateReads();
  ~StateReads();
  StateReads(const StateReads&) = delete;
  StateReads& operator=(const StateReads&) = delete;

  /// This thread's; null while nobody collects.
  static StateReads* active();

  /// Each state once, with the value that it had at the beginning; twice only if another thread changed it.
  std::vector<StateRead> reads() const;
  void add(StateRead read);
  /// This thread is about to change it.
  void will_change(const std::shared_ptr<const GuardedState>& state);
  /// Whether it has left one of them changed.
  bool left_changed() const;

 private:
  struct Change {
    std::shared_ptr<const GuardedState> state;
    uint64_t before;
  };
  StateReads* before_;
  std::vector<StateRead> reads_;
  std::vector<Change> changes_;
};

}  // namespace graft
