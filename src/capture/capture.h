// Runs a function once and gives what it did as a graph: forward, and where gradients are wanted backward
// too.
//
//   inputs of the graph    arguments, module slots, outside tensors (in the order of first use), then
//   tangents results of the graph   computed outputs, new values of mutated inputs; then gradients
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/module_tree.h"
#include "ir/graph.h"

namespace graft {

/// Where the value of a graph input comes from at each call.
struct Source {
  enum class Kind : uint8_t { argument, slot, outside, tangent } kind;
  size_t index;  ///< of the argument, of the tree's slot, into Capture::outside, of the output
};

/// How one output of the function comes about.
struct Output {
  enum class Kind : uint8_t {
    undefined,
    computed,  ///< result `index` of the graph
    input,     ///< the very tensor that is input `index` of the graph
    view       ///< of input `index`
  } kind = Kind::undefined;
  size_t index = 0;
  std::vector<int64_t> sizes = {}, strides = {};  ///< of a view
  int64_t offset = 0;                             ///< over the input's own
  bool requires_grad = false;
};

struct Mutation {
  size_t input;   ///< of the graph
  size_t result;  ///< of the graph: the value it has after the call
};

struct Gradient {
  size_t input;                  ///< of the graph
  std::optional<size_t> result;  ///< none: the outputs do not depend on it
};

struct Capture {
  ir::Graph graph;
  std::vector<Source> sources;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outside;
  std::vector<at::Generator> generators;
  std::vector<Output> outputs;
  std::vector<Mutation> mutations;
  std::vector<Gradient> gradients;     ///< empty without a backward pass
  std::vector<size_t> tangent_inputs;  ///< graph inputs, in the order of the outputs that require a gradient
  size_t forward_results = 0;

  // Of this run, for the first check:
  std::vector<at::Tensor> input_values;   ///< of every graph input, before mutation
  std::vector<at::Tensor> result_values;  ///< of every graph result
};

/// The function, called with stand-ins for its arguments (undefined ones stay undefined); gives its outputs.
using Traceable = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct CaptureRequest {
  const Traceable* function;
  std::vector<at::Tensor> arguments;
  const ModuleTree* modules;
  bool gradients;  ///< also the backward pass, for every input that requires a gradient
};

/// GraphBreak where no graph can say what the function does. Whatever is thrown, no argument, parameter or
/// buffer has changed; what the function's own code did besides has happened.
Capture capture(const CaptureRequest& request);

}  // namespace graft
