// Runs a function's C++ code over placeholders, part by part: where it reads a value on the host, all that it
// called until there is computed as one, the placeholders become the results, and the code continues with the
// real value. At the end the last part is computed. So any C++ is right, whatever it decides by values: what
// it calls is compared with traces of earlier runs, and where it does something new it continues as eager
// code, of which a trace is written.
//
// A part is computed between two calls of operators, never inside of one: autograd takes down where a call's
// arguments come from when the call begins, and that is the part once it is computed. Calls over placeholders
// go past autograd (histories would keep them alive, and what is alive is what a part has to give).
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/call_watcher.h"
#include "capture/effects.h"
#include "capture/placeholder_run.h"
#include "capture/trace_follower.h"

namespace graft {

class SplitRun : public CallWatcher {
 public:
  /// Calls of a trace that are computed as one.
  struct Part {
    size_t trace;  ///< which
    size_t first, last;
    /// What it reads of the function's arguments and of earlier parts, the numbers that are inputs, and what
    /// of it is still there at its end.
    std::vector<Trace::Ref> inputs, outputs;
  };
  /// Gives the outputs.
  using Compute = std::function<std::vector<at::Tensor>(const Part&, const std::vector<at::Tensor>& inputs)>;
  using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  /// A trace's inputs are the arguments, so many, then other tensors that the function reaches, and numbers.
  /// `modules`: gives the tensors of the function's modules.
  SplitRun(std::vector<TraceToFollow> traces, size_t arguments, Compute compute,
           std::function<std::vector<at::Tensor>()> modules);
  ~SplitRun() override { end(); }

  struct Outcome {
    std::vector<at::Tensor> outputs = {};
    size_t followed = 0;  ///< the trace that it followed last
    /// Of a run that did something new: what it called, and its inputs that are not arguments.
    std::shared_ptr<const Trace> trace = {};
    std::vector<at::Tensor> outside = {};
    /// Why the code cannot run so; then it has stopped midway, and done nothing yet.
    std::string refused = {};
  };
  /// What the function throws is thrown, after all that it did before.
  Outcome run(const Function& function, const std::vector<at::Tensor>& arguments);

  void on_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  void on_pointer(c10::StorageImpl* storage) override;

 private:
  class Suspended;
  void no_more_past_autograd();
  void read(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  void hold(const Trace::Call& call);
  void compute();
  void make_up();
  void leave_traces();
  void begin_writing(std::unique_ptr<TraceWriter> writer);
  void write_down(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  std::optional<size_t> input_of(const at::Tensor& tensor);

  size_t count_of_traces_, arguments_;
  Compute compute_;
  std::vector<at::Tensor> inputs_;  // arguments, then others
  std::map<const c10::TensorImpl*, size_t> numbers_;
  TraceFollower follower_;
  PlaceholderRunState state_;
  size_t first_ = 0;                     // of the calls that are not computed yet
  std::map<uint32_t, at::Tensor> held_;  // what these read of earlier parts
  /// While a call goes past autograd: the dispatch keys that were switched off before.
  std::optional<c10::DispatchKeySet> past_autograd_;
  bool has_acted_ = false;     // something was computed
  bool is_looked_at_ = false;  // what was called, by the code itself, once the call is over
  std::function<std::vector<at::Tensor>()> modules_;
  EffectsWatch::Start start_;
  std::optional<EffectsWatch> effects_;  // while the code runs as eager code
  DrawWatch draws_;
  std::unique_ptr<TraceWriter> writer_;  // while the code runs as eager code
  PointerWatch pointers_;
};

}  // namespace graft
