#include "autograd/recompute.h"

#include "autograd/partition.h"
#include "ir/clone.h"

namespace graft::autograd {
namespace {

void append(ir::Graph& to, const ir::Graph& from, ir::ValueMap& map) {
  for (const auto& node : from.nodes()) ir::copy_node(*node, to, map);
}

}  // namespace

ir::Graph with_recomputation(const ir::Graph& step, size_t forward_results) {
  const auto parts = partition(step, forward_results, {}, {.recompute_materialized = true});
  ir::Graph joined;
  for (size_t i = 0; i < step.inputs().size(); ++i)
    joined.add_input(step.input_name(i), step.inputs()[i]->type());
  const auto input = [&](size_t i) { return joined.inputs()[i].get(); };

  ir::ValueMap forward;
  for (size_t i = 0; i < parts.forward_inputs.size(); ++i)
    forward[parts.forward.inputs()[i].get()] = input(parts.forward_inputs[i]);
  append(joined, parts.forward, forward);
  joined.add_node("graft::boundary", {}, {});

  ir::ValueMap backward;
  for (size_t i = 0; i < parts.saved; ++i)
    backward[parts.backward.inputs()[i].get()] = forward.at(parts.forward.results()[forward_results + i]);
  for (size_t i = 0; i < parts.backward_inputs.size(); ++i)
    backward[parts.backward.inputs()[parts.saved + i].get()] = input(parts.backward_inputs[i]);
  append(joined, parts.backward, backward);

  const auto add_result = [&](const ir::Value* value, const ir::ValueMap& map) {
    joined.add_result(value ? map.at(value) : nullptr);
  };
  for (size_t i = 0; i < forward_results; ++i) add_result(parts.forward.results()[i], forward);
  for (const auto* result : parts.backward.results()) add_result(result, backward);
  return joined;
}

}  // namespace graft::autograd
