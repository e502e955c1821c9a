// Where a run of a function is on the traces of earlier ones: which call comes next, and which placeholder
// stands for which result.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "capture/trace.h"

namespace graft {

/// What a run may follow: a trace, and the tensors of this call for its inputs.
struct TraceToFollow {
  const Trace* trace;
  const std::vector<at::Tensor>* inputs;
};

class TraceFollower {
 public:
  /// The first of them is the one that is expected.
  explicit TraceFollower(std::vector<TraceToFollow> traces) : traces_(std::move(traces)) {}

  size_t current() const { return current_; }
  const Trace& trace() const { return *traces_[current_].trace; }
  const std::vector<at::Tensor>& inputs() const { return *traces_[current_].inputs; }
  /// How many calls the run has made.
  size_t calls() const { return next_; }

  /// Whether a trace says that this call comes now, with these arguments on top of the stack. It may be
  /// another one than before, if that is the same up to here.
  bool is_next(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  /// The same for the trace that was followed until now.
  bool is_next_here(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  const Trace::Call& next() const { return trace().calls[next_]; }
  /// Placeholders in place of the next call's arguments, and it is past.
  void give_placeholders(torch::jit::Stack& stack);
  /// The next call was made, and its results are on the stack. False if no trace has such results: of another
  /// shape.
  bool take_results(const torch::jit::Stack& stack);
  /// Whether a trace ends here, with these outputs.
  bool ends(const std::vector<at::Tensor>& outputs);

  /// What stands for a result: a placeholder, or what was computed.
  struct Object {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    const c10::StorageImpl* storage;
    bool is_computed;
    at::Tensor lock() const { return at::Tensor(tensor.lock()); }
    /// Undefined also where the code has given it other memory (set_data()): then it stands for it no more.
    at::Tensor placeholder() const;
  };
  const std::vector<Object>& made() const { return made_; }
  /// The placeholder has been filled.
  void note_computed(uint32_t number);
  at::Tensor tensor(const Trace::Ref& ref) const;

 private:
  bool matches(const Trace::Argument& argument, const c10::IValue& value) const;
  bool is(const Trace::Ref& ref, const at::Tensor& tensor) const;
  bool turn(const std::function<bool()>& fits);
  bool has_same_inputs(const TraceToFollow& other) const;
  void enter(const at::Tensor& tensor, bool is_computed);

  std::vector<TraceToFollow> traces_;
  size_t current_ = 0, next_ = 0;
  std::vector<Object> made_;
};

}  // namespace graft
