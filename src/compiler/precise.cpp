#include "compiler/precise.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "ir/arguments.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "target/ref/interpreter.h"

namespace graft {
namespace {

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() ? tensor.detach().to(at::kDouble) : tensor;
}

/// The graph with float64 for every floating dtype among the arguments, and every random node an input.
ir::Graph in_double(const ir::Graph& graph, std::vector<const ir::Node*>& random) {
  ir::Graph wide;
  ir::ValueMap map;
  const auto type = [](ir::TensorType t) {
    if (ir::is_floating(t.dtype)) t.dtype = ir::DType::f64;
    return t;
  };
  for (const auto& input : graph.inputs())
    map[input.get()] = &wide.add_input(graph.input_name(input->index()), type(input->type()));
  for (const auto& node : graph.nodes())
    if (ir::must_run(*node)) {
      random.push_back(node.get());
      for (const auto& output : node->outputs())
        map[output.get()] = &wide.add_input("random", type(output->type()));
    }
  for (const auto& node : graph.nodes()) {
    if (ir::must_run(*node)) continue;
    auto arguments = ir::mapped_arguments(*node, map);
    for (auto& argument : arguments)
      if (auto* attribute = std::get_if<ir::Attribute>(&argument.value))
        if (auto* dtype = std::get_if<ir::DType>(attribute); dtype && ir::is_floating(*dtype))
          *dtype = ir::DType::f64;
    // Made from nothing, in the default dtype.
    if (ir::kind_of(node->op()) == ir::OpKind::creation && ir::is_floating(node->output().type().dtype) &&
        !node->argument("dtype") && !node->argument("self") && node->op() != "graft::number")
      arguments.push_back({"dtype", ir::Attribute(ir::DType::f64)});
    std::vector<ir::TensorType> types;
    for (const auto& output : node->outputs()) types.push_back(type(output->type()));
    auto& twin = wide.add_node(node->op(), std::move(arguments), std::move(types));
    for (size_t i = 0; i < node->outputs().size(); ++i) map[node->outputs()[i].get()] = &twin.output(i);
  }
  for (const auto* result : graph.results()) wide.add_result(result ? map.at(result) : nullptr);
  return wide;
}

}  // namespace

TwoPrecisions run_precisely(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                            const std::vector<at::Generator>& generators) {
  const at::NoGradGuard no_grad;
  try {
    std::vector<const ir::Node*> random;
    const auto wide = in_double(graph, random);
    TwoPrecisions results;
    std::unordered_map<const ir::Node*, std::vector<at::Tensor>> drawn;
    results.plain = ref::interpret(graph, inputs, generators,
                                   [&](const ir::Node& node, const std::vector<at::Tensor>& made) {
                                     if (ir::must_run(node)) drawn[&node] = made;
                                   });
    std::vector<at::Tensor> wide_inputs;
    wide_inputs.reserve(inputs.size());
    for (const auto& input : inputs) wide_inputs.push_back(widened(input));
    for (const auto* node : random)
      for (const auto& made : drawn.at(node)) wide_inputs.push_back(widened(made));
    results.precise = ref::interpret(wide, wide_inputs, generators);
    return results;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace graft
