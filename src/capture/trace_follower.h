// Where a run of a function is on the traces of earlier ones: which call comes next, and which placeholder
// stands for which result.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <vector>

#include "capture/trace.h"

namespace graft {

/// What a run may follow: a trace, and the tensors of this call for its inputs. One that is undefined is told
/// by the run: a tensor that the code keeps somewhere, and may have put another in its place.
struct TraceToFollow {
  const Trace* trace;
  const std::vector<at::Tensor>* inputs;
  /// Whether such an input may be this tensor.
  std::function<bool(size_t input, const at::Tensor&)> may_be = {};
};

class TraceFollower {
 public:
  /// Who sees to it that placeholders say whether they require a gradient: autograd, which makes their
  /// histories, or the trace, where the run goes past it.
  enum class Flags : uint8_t { by_autograd, by_trace };
  /// The first of the traces is the one that is expected.
  TraceFollower(std::vector<TraceToFollow> traces, Flags flags) : traces_(std::move(traces)), flags_(flags) {}

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
  bool is_at_end() const { return next_ == trace().calls.size(); }
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
    /// Of one with memory of its own: that, which may outlive the object (in a view, or in what autograd
    /// saves).
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    struct Place {
      size_t call, result;
    };
    Place made;   ///< the result that it is,
    Place shown;  ///< or the one by which it became what it is now: of the last call that wrote to it
    bool is_computed;
    at::Tensor lock() const { return at::Tensor(tensor.lock()); }
    /// Undefined also where the code has given it other memory (set_data()): then it stands for it no more.
    at::Tensor placeholder() const;
  };
  const std::vector<Object>& made() const { return made_; }
  /// The inputs, with those that the run has told.
  std::vector<at::Tensor> inputs_now() const;
  /// By input, what this run has told: numbers, and tensors that are undefined among the inputs.
  const std::map<uint32_t, at::Tensor>& told() const { return told_; }
  /// The next call has these arguments on top of the stack; what they tell of inputs is noted.
  void note_inputs(const torch::jit::Stack& stack);
  /// The placeholder has been filled.
  void note_computed(uint32_t number);
  /// What the run has called is computed after all, past autograd and unwatched: all placeholders have their
  /// elements; histories are those that the run has made.
  void compute_elements();
  at::Tensor tensor(const Trace::Ref& ref) const;

 private:
  bool matches(const Trace::Argument& argument, const c10::IValue& value, bool grad_mode) const;
  bool is_input(uint32_t input, const at::Tensor& tensor) const;
  bool is_known(const at::Tensor& tensor) const;
  bool tells_one_thing(const torch::jit::Stack& stack) const;
  bool is(const Trace::Ref& ref, const at::Tensor& tensor, bool grad_mode) const;
  bool has_same_flags(const Object& object, const at::Tensor& tensor, bool grad_mode) const;
  at::Tensor as_placeholder(uint32_t number, at::Tensor made) const;
  bool turn(const std::function<bool()>& fits);
  bool has_same_inputs(const TraceToFollow& other) const;
  void enter(const at::Tensor& tensor, size_t result, bool is_computed);
  const Trace::Result& at(const Object::Place& place) const {
    return trace().calls[place.call].results[place.result];
  }

  std::vector<TraceToFollow> traces_;
  Flags flags_;
  size_t current_ = 0, next_ = 0;
  std::map<uint32_t, at::Tensor> told_;
  std::vector<Object> made_;
};

}  // namespace graft
