#include "distributed/gloo/peer_watch.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBrokenLimit{3000};
constexpr const char* kFailure = "graft/failure";

std::string key(const char* what, int rank) {
  return "graft/" + std::string(what) + "/" + std::to_string(rank);
}
std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

/// A future that two may complete: the work, or the watch. The first does.
struct PeerWatch::Pending {
  std::mutex guard;
  bool done = false;
  c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());

  bool first() {
    const std::lock_guard<std::mutex> lock(guard);
    return !std::exchange(done, true);
  }
  void complete(const c10::IValue& value) {
    if (first()) future->markCompleted(value);
  }
  void fail(const std::exception_ptr& error) {
    if (first()) future->setError(error);
  }
};

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::Store> store, const ProcessGroupOptions& options)
    : store_(std::move(store)),
      rank_(options.rank),
      size_(options.size),
      limit_(options.peer_timeout),
      period_(std::clamp(limit_ / 20, milliseconds(50), milliseconds(1000))),
      counts_(static_cast<size_t>(size_), 0),
      seen_(static_cast<size_t>(size_), Clock::now()),
      last_look_(Clock::now()),
      thread_([this] { run(); }),
      alarm_([this] { watch_the_store(); }) {}

void PeerWatch::End::operator()(PeerWatch* watch) const {
  {
    std::unique_lock<std::mutex> lock(watch->guard_);
    watch->stop_ = true;
    watch->changed_.notify_all();
    watch->changed_.wait(lock, [&] { return watch->finished_ || watch->silent_; });
    if (!watch->finished_) return;
  }
  delete watch;
}

PeerWatch::~PeerWatch() {
  thread_.join();
  alarm_.join();
}

template <class Call>
auto PeerWatch::ask(const Call& call) {
  struct Answered {
    std::atomic<int64_t>& count;
    ~Answered() { ++count; }
  };
  ++asked_;
  const Answered answered{answered_};
  return call();
}

void PeerWatch::run() {
  std::unique_lock<std::mutex> lock(guard_);
  const auto over = [this] { return stop_ || !cause_.empty(); };
  while (!over()) {
    lock.unlock();
    try {
      look();
    } catch (const std::exception&) {
      note_failure(
          "rank 0, where the processes meet, does not answer any more: it was killed or ended early");
    }
    lock.lock();
    changed_.wait_for(lock, period_, over);
  }
  const auto cause = cause_;
  lock.unlock();
  try {
    if (!cause.empty())
      ask([&] { return store_->compareSet(kFailure, {}, bytes(cause)); });  // the first cause counts
    lock.lock();
    changed_.wait(lock, [this] { return stop_; });
    lock.unlock();
    say_done();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without a store nobody is left to tell
  }
  if (!lock.owns_lock()) lock.lock();
  finished_ = true;
  changed_.notify_all();
}

void PeerWatch::say_done() {
  ask([&] { return store_->add(key("done", rank_), 1); });
  if (rank_ != 0) return;
  // After a failure the others still have to read the cause here, but some of them may be dead.
  const auto until = Clock::now() + (failed() ? std::min(limit_, kBrokenLimit) : limit_);
  for (int other = 1; other < size_; ++other)
    while (ask([&] { return store_->add(key("done", other), 0); }) == 0 && Clock::now() < until)
      std::this_thread::sleep_for(milliseconds(20));
}

void PeerWatch::watch_the_store() {
  milliseconds waited{0};  // by own periods: a process that was stopped itself has not waited
  int64_t seen = 0;
  std::unique_lock<std::mutex> lock(guard_);
  while (!finished_) {
    const auto asked = asked_.load();
    waited = asked != answered_.load() && asked == seen ? waited + period_ : milliseconds(0);
    seen = asked;
    if (waited > patience()) {
      silent_ = true;
      lock.unlock();
      note_failure("rank 0, where the processes meet, gives no sign of life any more: its process hangs");
      changed_.notify_all();
      return;
    }
    changed_.wait_for(lock, period_, [this] { return finished_; });
  }
}

void PeerWatch::look() {
  const auto now = Clock::now();
  // It was this process that stood still: the others had no chance to be seen.
  if (now - last_look_ > limit_ / 2) std::fill(seen_.begin(), seen_.end(), now);
  last_look_ = now;
  ask([&] { return store_->add(key("alive", rank_), 1); });
  if (ask([&] { return store_->check({kFailure}); })) {
    const auto cause = ask([&] { return store_->get(kFailure); });
    return note_failure({cause.begin(), cause.end()});
  }
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const auto at = static_cast<size_t>(other);
    const auto count = ask([&] { return store_->add(key("alive", other), 0); });
    if (count != counts_[at] || ask([&] { return store_->add(key("done", other), 0); }) > 0) {
      counts_[at] = count;
      seen_[at] = now;
    } else if (now - seen_[at] > patience()) {
      return note_failure("rank " + std::to_string(other) +
                          " gives no sign of life any more: its process was killed or hangs");
    }
  }
}

std::chrono::milliseconds PeerWatch::patience() const {
  return *broken_ ? std::min(limit_, kBrokenLimit) : limit_;
}

bool PeerWatch::broken() const { return *broken_ || failed(); }

bool PeerWatch::failed() const {
  const std::lock_guard<std::mutex> lock(guard_);
  return !cause_.empty();
}

void PeerWatch::note_failure(const std::string& cause) {
  std::vector<std::weak_ptr<Pending>> pending;
  std::vector<c10::intrusive_ptr<c10d::Work>> messages;
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (!cause_.empty()) return;
    cause_ = cause;
    pending.swap(pending_);
    messages = messages_;
    actions.swap(actions_);
  }
  changed_.notify_all();
  const auto error = std::make_exception_ptr(Error("[dist] " + cause));
  for (const auto& weak : pending)
    if (const auto each = weak.lock()) each->fail(error);
  for (const auto& message : messages) message->abort();  // its wait ends
  for (const auto& action : actions) action();
}

void PeerWatch::on_failure(std::function<void()> action) {
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (cause_.empty()) return actions_.push_back(std::move(action));
  }
  action();
}

void PeerWatch::fail(const std::string& why) {
  note_failure("rank " + std::to_string(rank_) + " gave up: " + why);
}

c10::intrusive_ptr<c10::ivalue::Future> PeerWatch::guarded(const c10::intrusive_ptr<c10d::Work>& work) {
  auto mine = std::make_shared<Pending>();
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (!cause_.empty()) throw Error("[dist] " + cause_);
    std::erase_if(pending_, [](const auto& weak) { return weak.expired(); });
    pending_.push_back(mine);
  }
  // The callback keeps the work, whose tensors it writes, until it is done, also if nobody waits any more.
  work->getFuture()->addCallback([broken = broken_, mine, work](c10::ivalue::Future& done) {
    if (!done.hasError()) return mine->complete(done.value());
    *broken = true;
    mine->fail(done.exception_ptr());
  });
  return mine->future;
}

void PeerWatch::wait(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto future = guarded(work);
  try {
    future->waitAndThrow();
  } catch (const std::exception& error) {
    throw_cause(error.what());
  }
}

void PeerWatch::wait_for_message(const c10::intrusive_ptr<c10d::Work>& work) {
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (!cause_.empty()) throw Error("[dist] " + cause_);
    messages_.push_back(work);
  }
  std::string failure;
  try {
    if (!work->wait()) failure = "a message was given up";
  } catch (const std::exception& error) {
    failure = error.what();
  }
  {
    const std::lock_guard<std::mutex> lock(guard_);
    std::erase(messages_, work);
  }
  if (!failure.empty()) throw_cause(failure);
}

void PeerWatch::throw_cause(const std::string& message) {
  *broken_ = true;
  std::unique_lock<std::mutex> lock(guard_);
  changed_.wait_for(lock, std::min(limit_, kBrokenLimit) + 4 * period_, [this] { return !cause_.empty(); });
  if (!cause_.empty()) throw Error("[dist] " + cause_);
  throw Error("[dist] a call among the processes failed: " + message.substr(0, message.find('\n')));
}

}  // namespace graft::dist
