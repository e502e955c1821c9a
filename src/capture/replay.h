// Runs a function's C++ code again over placeholders, and compares what it calls with traces of earlier runs.
// Nothing is computed. Where it calls what a trace says, a program made from that does what the function
// would do now.
//
// Where it calls something else, what it has called until there is made up for: the calls run, the
// placeholders become their results, and the function continues as eager code, none the wiser. So it runs
// once, whatever comes of it.
//
// The code runs below autograd, and makes no history; a placeholder says that it requires a gradient where
// the tensor of the trace did.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/call_watcher.h"
#include "capture/placeholder_run.h"
#include "capture/trace_follower.h"

namespace graft {

class ReplayedRun : public CallWatcher {
 public:
  /// Called where the code does something else: from then on it runs as eager code. (Recording may begin.)
  using Begin = std::function<void()>;
  /// The placeholder is from now on what this call gave.
  using Filled = std::function<void(const at::Tensor& placeholder, const at::Tensor& made)>;
  using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  /// The first of `traces` is the one that is expected.
  ReplayedRun(std::vector<TraceToFollow> traces, Begin begin, Filled filled);
  ~ReplayedRun() override;

  struct Outcome {
    std::optional<size_t> followed = {};   ///< which trace; then nothing was computed
    std::vector<at::Tensor> outputs = {};  ///< if none was followed
    /// Why the code cannot be replayed; then it has stopped midway, with nothing computed.
    std::string refused = {};
  };
  /// What the function throws is thrown, after all that it did before.
  Outcome run(const Function& function, const std::vector<at::Tensor>& arguments);

  void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  /// Nothing is watched: other threads may use the arguments at the same time.
  void on_pointer(c10::StorageImpl*) override {}

 private:
  bool keeps_something(const std::vector<at::Tensor>& outputs) const;
  void make_up();
  void stop();

  TraceFollower follower_;
  Begin begin_;
  Filled filled_;
  KeptDispatchKeys keys_;
  std::optional<BelowAutograd> below_;
  bool following_ = true, inference_ = c10::InferenceMode::is_enabled();
};

}  // namespace graft
