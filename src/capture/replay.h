// Runs a function's C++ code again over placeholders, and compares what it calls with traces of earlier runs.
// Nothing is computed. Where it calls what a trace says, a program made from that does what the function
// would do now.
//
// Where it calls something else, what it has called until there is made up for: the calls run, their results
// become the placeholders' elements, and the function continues as eager code, none the wiser. So it runs
// once, whatever comes of it.
//
// Autograd works as always, over placeholders: they have the histories, flags and hooks that eager code
// would give them. With the elements made up for, these histories are right, and there is no other.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/call_watcher.h"
#include "capture/placeholder_run.h"
#include "capture/trace_follower.h"

namespace graft {

class ReplayedRun : public CallWatcher {
 public:
  using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  /// The first of `traces` is the one that is expected.
  explicit ReplayedRun(std::vector<TraceToFollow> traces)
      : follower_(std::move(traces), TraceFollower::Flags::by_autograd) {}
  ~ReplayedRun() override { end(); }

  struct Outcome {
    std::optional<size_t> followed = {};       ///< which trace; then nothing was computed
    std::map<uint32_t, at::Tensor> told = {};  ///< its inputs that the run has told
    std::vector<at::Tensor> outputs = {};      ///< if none was followed
    /// One was followed, but the code has put something aside, which had to be computed.
    bool kept = false;
    /// Why the code cannot be replayed; then it has stopped midway, with nothing computed.
    std::string refused = {};
  };
  /// What the function throws is thrown, after all that it did before.
  Outcome run(const Function& function, const std::vector<at::Tensor>& arguments);

  void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  /// Nothing is watched: other threads may use the arguments at the same time.
  void on_pointer(c10::StorageImpl*) override {}

 private:
  bool keeps_something(std::vector<at::Tensor>& outputs);
  void make_up();
  void compute_kept();

  TraceFollower follower_;
  PlaceholderRunState state_;
  bool following_ = true, kept_ = false;
};

}  // namespace graft
