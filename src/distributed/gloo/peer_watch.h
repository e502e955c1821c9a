// Who of the processes is alive. Each counts up in the store that rank 0 keeps; a thread looks whether the
// others' counts still grow, and whether one of them has said why it gives up.
//
// The store's calls wait for ever where rank 0 is stopped, so that only that thread makes them; a second one
// notices when a call does not come back.
//
// Gloo itself notices a closed connection but not whose fault it is, and a process that hangs only when the
// time of the whole call is over. A wait through this watch ends as soon as the cause is known.
#pragma once
#include <ATen/core/ivalue.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "graft/process_group.h"

namespace graft::dist {

class PeerWatch {
 public:
  PeerWatch(c10::intrusive_ptr<c10d::Store> store, const ProcessGroupOptions& options);
  /// Says that this process is done. Rank 0, which keeps the store, waits for the others' word. A watch whose
  /// thread still waits for the store is left to it.
  struct End {
    void operator()(PeerWatch* watch) const;
  };
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// Completed when the work is, or with an error as soon as a process is known to be gone.
  c10::intrusive_ptr<c10::ivalue::Future> guarded(const c10::intrusive_ptr<c10d::Work>& work);
  /// Waits for it. Error that names the rank.
  void wait(const c10::intrusive_ptr<c10d::Work>& work);
  /// The same for a message sent or received, whose work has no future.
  void wait_for_message(const c10::intrusive_ptr<c10d::Work>& work);
  /// For an exception that came out of Gloo: throws what stands behind it.
  [[noreturn]] void throw_cause(const std::string& message);
  /// Whether a call among the processes has failed.
  bool broken() const;
  void fail(const std::string& why);
  bool failed() const;
  /// Called once a process is known to be gone, from any thread.
  void on_failure(std::function<void()> action);

 private:
  struct Pending;
  using Clock = std::chrono::steady_clock;

  ~PeerWatch();  // by End only: the threads are over
  void run();
  void look();
  void say_done();
  void watch_the_store();
  /// A call of the store.
  template <class Call>
  auto ask(const Call& call);
  void note_failure(const std::string& cause);
  std::chrono::milliseconds patience() const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_, size_;
  std::chrono::milliseconds limit_, period_;
  std::vector<int64_t> counts_;
  std::vector<Clock::time_point> seen_;
  Clock::time_point last_look_;

  /// A call failed: silence means more now. Shared with calls that end after this object.
  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  mutable std::mutex guard_;
  std::condition_variable changed_;
  bool stop_ = false, finished_ = false;
  bool silent_ = false;  ///< rank 0's store does not answer
  std::atomic<int64_t> asked_{0}, answered_{0};
  std::string cause_;  ///< why the group cannot continue; empty: it can
  std::vector<std::function<void()>> actions_;
  std::vector<std::weak_ptr<Pending>> pending_;
  std::vector<c10::intrusive_ptr<c10d::Work>> messages_;  ///< waited for
  std::thread thread_, alarm_;
};

}  // namespace graft::dist
