// What a run of a function called, in order: each operator with its literals and with which tensors. A later
// run of the same code is compared with it, call by call (capture/replay.h).
//
// It is finer than the graph: tensor objects as the code has them, writes as writes.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace graft {

struct Trace {
  /// A tensor object: an input of the graph, or what a call gave.
  struct Ref {
    enum class Kind : uint8_t { undefined, input, made } kind = Kind::undefined;
    uint32_t number = 0;  ///< of the graph's inputs, or of what calls gave
    bool operator==(const Ref&) const = default;
  };

  struct Argument {
    enum class Kind : uint8_t {
      literal,
      number,  ///< a C++ number on its way into an operator, as a tensor
      tensor,
      tensors
    } kind = Kind::literal;
    c10::IValue value = {};  ///< a literal, or a number's tensor
    std::vector<Ref> tensors = {};
    /// Of a number that is an input of the graph: which. It may be another one in each call.
    std::optional<uint32_t> input = {};
  };
  /// Where a number is.
  struct NumberPlace {
    size_t call, argument;
    auto operator<=>(const NumberPlace&) const = default;
  };

  struct Result {
    enum class Kind : uint8_t {
      undefined,
      literal,  ///< sizes that some operators give beside tensors
      given,    ///< an argument, the very object
      made
    } kind = Kind::undefined;
    c10::IValue value = {};
    uint32_t number = 0;  ///< of one that is made
    /// What is given, or shares its memory with what is made; undefined: memory of its own.
    Ref of = {};
    at::ScalarType dtype = at::kFloat;
    at::Device device = at::kCPU;
    std::vector<int64_t> sizes = {}, strides = {};
    int64_t offset = 0;          ///< over that of `of`
    size_t bytes = 0;            ///< of memory of its own
    bool requires_grad = false;  ///< when a call is given it for the first time, or the function gives it
  };

  struct Call {
    c10::OperatorHandle op;
    /// As the code has it, where that takes a number that is an input here.
    std::optional<c10::OperatorHandle> spelled = {};
    bool grad_mode;
    std::vector<Argument> arguments;
    std::vector<Result> results;
    std::vector<int64_t> lists;  ///< for each thing that it returns: the length of a list, -1 for others
    bool reads = false;          ///< elements: what it gives, or its shape, depends on them
    bool kept = false;           ///< a copy that is still there when the code has ended
    bool pointer_after = false;  ///< before the next one the code takes a pointer to elements
  };

  std::vector<Call> calls;
  std::vector<Ref> outputs;
  uint32_t made = 0;
  bool writes_inputs = false;
  bool has_hooks = false;  ///< the code puts hooks on what it makes, or has it keep its gradient
  /// Why code cannot be compared with it; empty if it can.
  std::string refused;
};

/// To the bit.
bool is_same_literal(const c10::IValue& a, const c10::IValue& b);
/// Of two numbers on their way into operators: of one dtype; to the bit.
bool is_same_kind_of_number(const at::Tensor& a, const at::Tensor& b);
bool is_same_number(const at::Tensor& a, const at::Tensor& b);
/// Whether two traces begin with the same calls, so many.
bool begin_alike(const Trace& a, const Trace& b, size_t calls);
/// Whether two calls are the same, whatever they gave.
bool is_same_call_but_results(const Trace::Call& a, const Trace::Call& b);
/// The number at a place, as a tensor.
const at::Tensor& number_in(const Trace& trace, const Trace::NumberPlace& place);
/// Where two traces have other numbers; nothing if that is not all that differs.
std::optional<std::vector<Trace::NumberPlace>> differing_numbers(const Trace& a, const Trace& b);
/// The trace with its numbers at these places as inputs, which come after so many others.
std::shared_ptr<const Trace> with_number_inputs(const Trace& trace,
                                                const std::vector<Trace::NumberPlace>& places, size_t inputs);
/// The trace with its inputs after the arguments in the order in which it comes upon them, and `order`: which
/// they were. Traces that begin alike then have the same numbers for them.
std::shared_ptr<const Trace> with_inputs_in_order(const Trace& trace, size_t arguments,
                                                  std::vector<size_t>& order);
/// Whether one of these calls is given one of these inputs.
bool uses_inputs(const Trace& trace, size_t first, size_t last, const std::vector<size_t>& inputs);
/// Whether it has a copy that no call reads, and nobody keeps (autograd does, of what is overwritten).
bool copies_to_read(const Trace& trace);
/// All of it.
bool is_same_trace(const Trace& a, const Trace& b);

/// Whether a tensor lies in its memory as it is said there.
bool lies_as(const at::Tensor& tensor, const Trace::Result& result);

/// Writes one while a function runs.
class TraceWriter {
 public:
  /// Which input of the trace a tensor object is that no call has made.
  using InputOf = std::function<std::optional<size_t>(const at::Tensor&)>;
  explicit TraceWriter(InputOf input_of) : input_of_(std::move(input_of)) {}
  /// One that begins with some calls of another, which have given these tensors (undefined: gone since).
  TraceWriter(InputOf input_of, const Trace& beginning, size_t calls, const std::vector<at::Tensor>& made);

  /// A call has been made, and its results are on top of the stack.
  void add(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
           const std::vector<c10::IValue>& results);
  void refuse(const std::string& reason);
  size_t calls() const { return trace_->calls.size(); }
  /// In the code the next call of this operator is one of its twin with a number.
  void note_spelling(const c10::OperatorHandle& op, const c10::OperatorHandle& spelled) {
    spelling_.emplace(op, spelled);
  }
  /// This number, which somebody keeps, is an input.
  void note_input(const at::Tensor& number, uint32_t input) {
    number_inputs_.emplace(number.unsafeGetTensorImpl(), input);
  }
  /// The function has given these.
  std::shared_ptr<const Trace> finish(const std::vector<at::Tensor>& outputs);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::TensorImpl> alive;
    uint32_t number;
    /// The result by which it became what it is: of its call, or the last one that wrote to it.
    size_t call, result;
    const c10::StorageImpl* storage;
    bool seen = false;
  };
  Known* find(const at::Tensor& tensor);
  Trace::Ref ref_of(const at::Tensor& tensor);
  Trace::Argument argument_of(const c10::IValue& value);
  Trace::Result result_of(const c10::IValue& value, const std::vector<at::Tensor>& given);
  Trace::Result made(const at::Tensor& tensor, const std::vector<at::Tensor>& given);
  void see_flags(Known& known, const at::Tensor& tensor);
  void enter(const at::Tensor& tensor, uint32_t number, size_t call, size_t result);
  void find_reads();

  InputOf input_of_;
  std::shared_ptr<Trace> trace_ = std::make_shared<Trace>();
  std::unordered_map<const c10::TensorImpl*, Known> known_;
  std::unordered_map<const c10::TensorImpl*, uint32_t> number_inputs_;
  std::optional<std::pair<c10::OperatorHandle, c10::OperatorHandle>> spelling_;
  /// By number of what was made: the call and its result.
  std::vector<std::pair<size_t, size_t>> shapes_;
  /// Of what was made.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  /// By call: the memory of copies.
  std::vector<std::pair<size_t, c10::weak_intrusive_ptr<c10::StorageImpl>>> copies_;
  bool inference_ = c10::InferenceMode::is_enabled();
};

}  // namespace graft
