// Runs a function once, as eager code runs, and gives what it did as a graph: forward, and where gradients
// are wanted backward too.
//
//   inputs of the graph    arguments, then module slots and outside tensors in the order of first use, then
//   tangents results of the graph   computed outputs, new values of mutated inputs; then gradients
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/module_tree.h"
#include "capture/trace.h"
#include "ir/graph.h"

namespace graft {

/// Where the value of a graph input comes from at each call.
struct Source {
  enum class Kind : uint8_t {
    argument,
    slot,
    outside,
    number,  ///< a C++ number: a replay tells it
    told,    ///< a tensor from elsewhere that is another one at times: a replay tells which
    tangent
  } kind;
  /// Of the argument, of the tree's slot, into `outside`, into `told.numbers`, into `told_tensors`, of the
  /// output.
  size_t index;
  bool operator==(const Source&) const = default;
};

/// How one output of the function comes about.
struct Output {
  enum class Kind : uint8_t {
    undefined,
    computed,  ///< result `index` of the graph
    input,     ///< the very tensor that is input `index` of the graph
    view,      ///< of input `index`
    part,      ///< a view of output `index`
    piece,     ///< a view of result `index`, whose memory it shares with other outputs
    same       ///< the very tensor that is output `index`
  } kind = Kind::undefined;
  size_t index = 0;
  std::vector<int64_t> sizes = {}, strides = {};  ///< of a view or part
  int64_t offset = 0;        ///< over the input's or result's own; of a computed one: in its memory
  int64_t whole_offset = 0;  ///< of a piece: the result's own
  bool requires_grad = false;
  bool conj = false;     ///< of a computed one
  bool tracked = false;  ///< a view or part: autograd knows what it is a view of (a detached one is not)
  /// A view of an input that was made before the last write into it, or into another part of its storage.
  /// Autograd then makes the view's history again when it is asked for, from what the view's base is by then.
  bool before_a_write = false;
  bool operator==(const Output&) const = default;
};

/// Inputs that differ from call to call and that no guard sees: replays of the function's code tell them.
struct ToldInputs {
  std::vector<Trace::NumberPlace> numbers = {};  ///< in C++ code
  /// Of the tensors that are neither arguments nor a module's, in the order of their first use: which.
  std::vector<size_t> tensors = {};
  bool empty() const { return numbers.empty() && tensors.empty(); }
  bool operator==(const ToldInputs&) const = default;
};

struct Mutation {
  size_t input;   ///< of the graph
  size_t result;  ///< of the graph: the value it has after the call
  bool operator==(const Mutation&) const = default;
};

struct Gradient {
  size_t input;                  ///< of the graph
  std::optional<size_t> result;  ///< none: the outputs do not depend on it
  /// For each tangent: whether its output's history leads here. If that of no output that is used does, there
  /// is no gradient, not even zeros.
  std::vector<bool> by = {};
  /// Of a sparse gradient, whose values `result` is: the result that says where they belong, and its sizes.
  std::optional<size_t> indices = {};
  std::vector<int64_t> sizes = {};
  bool operator==(const Gradient&) const = default;
};

/// What the function did, without the values of one run: all that a program keeps of its capture.
struct CapturedFunction {
  ir::Graph graph;
  std::vector<Source> sources;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outside;
  ToldInputs told;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> told_tensors;
  std::vector<at::Generator> generators;
  std::vector<Output> outputs;
  std::vector<Mutation> mutations;
  std::vector<Gradient> gradients;     ///< empty without a backward pass
  std::vector<size_t> tangent_inputs;  ///< graph inputs, in the order of the outputs that require a gradient
  size_t forward_results = 0;
  std::shared_ptr<const Trace> trace;
  /// What the graph takes for granted about values, in the order in which the function asked
  /// (runtime/assumption.h).
  std::vector<bool> assumptions;
};

/// The same with the values of the captured run, to check a program by.
struct Capture : CapturedFunction {
  std::vector<at::Tensor> input_values;   ///< of every graph input, before mutation
  std::vector<at::Tensor> result_values;  ///< of every graph result
};

/// Whether an operator is given a place in a storage, not in a tensor: the number may come from a tensor's
/// own offset.
bool counts_from_storage(const ir::Graph& graph);

/// The function; gives its outputs.
using Traceable = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct CaptureRequest {
  const Traceable* function;
  std::vector<at::Tensor> arguments;
  const ModuleTree* modules;
  bool gradients;       ///< also the backward pass, for every input that requires a gradient
  bool throws = false;  ///< what no graph can hold ends the function with a GraphBreak
  std::vector<at::Generator> generators = {};  ///< that the function is known to draw from
  /// Whether the outputs are to be differentiated once more. If not, what eager code saved goes as the
  /// backward pass is seen: page after page that need not be new.
  bool keep_history = true;
  /// These C++ numbers are inputs of the graph, not part of it, and these tensors are any.
  ToldInputs told = {};
  /// Answers of comparisons may be taken for granted; if not, they are reads like others.
  bool assumes = true;
  /// After the first break the run is watched for more of them, and can be undone all the same.
  bool lists_breaks = false;
  /// Copies that nobody uses are not taken for something that is printed.
  bool ignores_printing = false;
};

class Recorder;

/// One run of a function: what it gave and did is as if nobody had watched.
struct ObservedRun {
  ObservedRun();
  ~ObservedRun();
  ObservedRun(ObservedRun&&) noexcept;
  ObservedRun& operator=(ObservedRun&&) noexcept;

  std::vector<at::Tensor> outputs;
  std::optional<Capture> capture;            ///< none: see `broken`
  std::string broken, backtrace;             ///< why no graph holds what it did
  std::vector<std::string> breaks;           ///< the same, and with `lists_breaks` those after it
  bool broken_by_read = false;               ///< that is, because it reads a value on the host
  std::vector<at::Generator> generators;     ///< that were given to operators,
  std::vector<at::Tensor> generator_states;  ///< and their states before
  std::unique_ptr<Recorder> recorder;

  /// Puts back what arguments, parameters and buffers held before the run. What the function's own code did
  /// besides has happened.
  void undo() const;
  /// The first call whose result is alive although nobody should have it any more, in words; empty if none.
  /// `results` are those that may be.
  std::string escaped(const std::vector<at::Tensor>& results) const;
};

/// Runs the function once. What it throws is thrown; with `throws` also a GraphBreak, and then nothing it was
/// given has changed.
ObservedRun observe(const CaptureRequest& request);

/// The graph alone: nothing the function was given has changed afterwards. GraphBreak where there is none.
Capture capture(const CaptureRequest& request);

/// The same, or all breaks (CaptureRequest::lists_breaks).
struct GraphOrBreaks {
  std::optional<Capture> graph;
  std::vector<std::string> breaks;
};
GraphOrBreaks capture_or_list_breaks(CaptureRequest request);

}  // namespace graft
