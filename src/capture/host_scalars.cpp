#include "capture/host_scalars.h"

#include <ATen/ATen.h>

#include "capture/ivalue.h"
#include "ir/clone.h"

namespace graft {
namespace {

ir::Attribute number_in(const at::Tensor& scalar) {
  if (scalar.is_floating_point()) return scalar.item<double>();
  if (scalar.scalar_type() == at::kBool) return scalar.item<bool>();
  return scalar.item<int64_t>();
}

/// The graph with nodes that make the constants, in place of inputs.
ir::Graph without_inputs(const ir::Graph& graph, const std::map<size_t, at::Tensor>& scalars) {
  ir::Graph made;
  ir::ValueMap map;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (!scalars.contains(i))
      map[graph.inputs()[i].get()] = &made.add_input(graph.input_name(i), graph.inputs()[i]->type());
  for (const auto& [input, scalar] : scalars) {
    const auto type = type_of(scalar);
    auto& node = made.add_node("aten::scalar_tensor",
                               {{"s", number_in(scalar)}, {"dtype", ir::Attribute(type.dtype)}}, {type});
    map[graph.inputs()[input].get()] = &node.output();
  }
  for (const auto& node : graph.nodes()) ir::copy_node(*node, made, map);
  for (const auto* result : graph.results()) made.add_result(result ? map.at(result) : nullptr);
  return made;
}

}  // namespace

void make_constants(Capture& capture, const std::map<size_t, at::Tensor>& scalars) {
  if (scalars.empty()) return;
  capture.graph = without_inputs(capture.graph, scalars);
  std::vector<size_t> number(capture.sources.size());  // by input: what it is afterwards
  std::vector<Source> sources;
  std::vector<at::Tensor> values;
  decltype(capture.outside) outside;
  for (size_t i = 0; i < capture.sources.size(); ++i) {
    if (scalars.contains(i)) continue;
    number[i] = sources.size();
    auto source = capture.sources[i];
    if (source.kind == Source::Kind::outside) {
      outside.push_back(capture.outside[source.index]);
      source.index = outside.size() - 1;
    }
    sources.push_back(source);
    values.push_back(capture.input_values[i]);
  }
  capture.sources = std::move(sources);
  capture.input_values = std::move(values);
  capture.outside = std::move(outside);
  for (auto& output : capture.outputs)
    if (output.kind == Output::Kind::input || output.kind == Output::Kind::view)
      output.index = number[output.index];
  for (auto& mutation : capture.mutations) mutation.input = number[mutation.input];
  for (auto& gradient : capture.gradients) gradient.input = number[gradient.input];
  for (auto& input : capture.tangent_inputs) input = number[input];
  // Its numbers are those of the inputs as they were.
  auto trace = std::make_shared<Trace>(*capture.trace);
  if (trace->refused.empty()) trace->refused = "the function makes a tensor of a number past the dispatcher";
  capture.trace = std::move(trace);
}

}  // namespace graft
