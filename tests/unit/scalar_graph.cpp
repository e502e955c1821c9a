#include "scalar_graph.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "ir/op_traits.h"

namespace graft::autograd {
namespace {

struct OpCase {
  const char* op;
  size_t inputs, outputs;
};
constexpr OpCase kOps[] = {
    {"aten::mul.Tensor", 2, 1},     {"aten::sin", 1, 1},          {"aten::sub.Tensor", 2, 1},
    {"aten::tanh", 1, 1},           {"aten::relu", 1, 1},         {"aten::exp", 1, 1},
    {"aten::add.Tensor", 2, 1},     {"aten::view", 1, 1},         {"aten::split.Tensor", 1, 2},
    {"aten::full", 0, 1},           {"aten::mm", 2, 1},           {"aten::sum", 1, 1},
    {"aten::native_dropout", 1, 2}, {"aten::index", 2, 1},        {"aten::rand_like", 1, 1},
    {"aten::topk", 1, 2},           {"mine::op", 1, 1},           {"mine::effect", 1, 0},
    {"aten::where.self", 3, 1},     {"aten::frexp.Tensor", 1, 2},
};

/// At least `low` and less than `high`, evenly from the first case on: not the small numbers first.
size_t pick(size_t low, size_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high));
}

using Values = std::vector<ir::Value*>;

/// `first`, where there is one, is its first argument.
void add_random_call(ir::Graph& graph, Values& values, ir::Value* first = nullptr) {
  const auto& op = kOps[pick(0, std::size(kOps))];
  std::vector<ir::NamedArgument> arguments;
  const auto any = [&] { return values[pick(0, values.size())]; };
  for (size_t i = 0; i < op.inputs; ++i) arguments.push_back({"a" + std::to_string(i), any()});
  if (pick(0, 10) == 0 && op.inputs > 1) arguments.push_back({"list", ir::ValueList{any(), nullptr, any()}});
  if (first) arguments.empty() ? arguments.push_back({"a0", first}) : void(arguments[0].value = first);
  std::vector<ir::TensorType> types;
  for (size_t i = 0; i < op.outputs; ++i)
    types.push_back(ir::contiguous(ir::DType::f32, {static_cast<ir::Dim>(pick(0, 50))}));
  auto& node = graph.add_node(op.op, std::move(arguments), std::move(types));
  for (const auto& output : node.outputs()) values.push_back(output.get());
}

bool is_drawing(const ir::Node& node) { return ir::kind_of(node.op()) == ir::OpKind::random; }

}  // namespace

RandomJoint random_joint(bool only_gradients) {
  RandomJoint made;
  auto& graph = made.joint.graph;
  Values values;
  const auto type = ir::contiguous(ir::DType::f32, {10});
  const auto inputs = pick(1, 4), tangents = pick(1, 3);
  for (size_t i = 0; i < inputs; ++i) {
    values.push_back(&graph.add_input("x" + std::to_string(i), type));
    if (pick(0, 3) == 0) made.mutated.push_back(i);
  }
  const auto calls = pick(0, 25), more = pick(1, 25);
  for (size_t i = 0; i < calls; ++i) add_random_call(graph, values);
  made.joint.forward_results = pick(0, 5);
  const auto any = [&] { return values[pick(0, values.size())]; };
  for (size_t i = 0; i < made.joint.forward_results; ++i) graph.add_result(any());
  for (size_t i = 0; i < tangents; ++i) {
    made.joint.tangent_inputs.push_back(inputs + i);
    values.push_back(&graph.add_input("t" + std::to_string(i), type));
  }
  const size_t start = values.size() - tangents;
  for (size_t i = 0; i < more; ++i)
    add_random_call(graph, values, only_gradients ? values[pick(start, values.size())] : nullptr);
  const auto gradients = pick(0, 5);
  for (size_t i = 0; i < gradients; ++i) graph.add_result(pick(0, 8) == 0 ? nullptr : any());
  return made;
}

std::vector<double> run_scalars(const ir::Graph& graph, const std::vector<double>& inputs, size_t& drawn) {
  std::unordered_map<const ir::Value*, double> at;
  for (size_t i = 0; i < inputs.size(); ++i) at[graph.inputs()[i].get()] = inputs[i];
  for (const auto& node : graph.nodes()) {
    double sum = static_cast<double>(std::hash<std::string>()(node->op()) % 1000) / 1000;
    double weight = 1;
    for (const auto* input : node->inputs()) sum += (weight *= 0.7) * at.at(input);
    if (node->op() == "aten::clone") {
      at[&node->output()] = at.at(node->inputs()[0]);
      continue;
    }
    if (is_drawing(*node)) sum += std::sin(static_cast<double>(++drawn));
    for (size_t i = 0; i < node->outputs().size(); ++i)
      at[&node->output(i)] = std::cos(sum + static_cast<double>(i));
  }
  std::vector<double> results;
  for (const auto* value : graph.results()) results.push_back(value ? at.at(value) : 0);
  return results;
}

int64_t needed_bytes(const RandomJoint& made_up) {
  const auto& graph = made_up.joint.graph;
  std::unordered_set<const ir::Value*> late;
  for (const size_t i : made_up.joint.tangent_inputs) late.insert(graph.inputs()[i].get());
  Values needed;
  for (const auto& node : graph.nodes()) {
    const auto inputs = node->inputs();
    if (std::none_of(inputs.begin(), inputs.end(), [&](const auto* v) { return late.contains(v); })) continue;
    for (const auto& output : node->outputs()) late.insert(output.get());
    needed.insert(needed.end(), inputs.begin(), inputs.end());
  }
  needed.insert(needed.end(),
                graph.results().begin() + static_cast<std::ptrdiff_t>(made_up.joint.forward_results),
                graph.results().end());

  std::unordered_set<const ir::Value*> bases;
  while (!needed.empty()) {
    auto* value = needed.back();
    needed.pop_back();
    if (!value || late.contains(value)) continue;
    if (value->producer() && ir::kind_of(value->producer()->op()) == ir::OpKind::view)
      for (auto* input : value->producer()->inputs()) needed.push_back(input);
    else if (value->producer() || std::find(made_up.mutated.begin(), made_up.mutated.end(), value->index()) !=
                                      made_up.mutated.end())
      bases.insert(value);
  }
  int64_t bytes = 0;
  for (const auto* value : bases) bytes += value->type().bytes();
  return bytes;
}

}  // namespace graft::autograd
