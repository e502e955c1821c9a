#include "verify/cancelling_sums.h"

#include <ATen/ATen.h>

#include <set>

#include "ir/arguments.h"
#include "ir/clone.h"
#include "passes/dead_code.h"
#include "targets/reference/interpreter.h"

namespace graft::verify {
namespace {

/// Looks through what leaves the elements in their order.
const ir::Value& unshaped(const ir::Value& value) {
  static const std::set<std::string> reshapes = {
      "aten::view",         "aten::_unsafe_view", "aten::reshape", "aten::squeeze", "aten::squeeze.dim",
      "aten::squeeze.dims", "aten::unsqueeze",    "aten::alias",   "aten::detach"};
  const auto* at = &value;
  while (at->producer() && reshapes.contains(at->producer()->op()))
    at = ir::value_of(*at->producer(), "self");
  return *at;
}

const ir::Node* sum_behind(const ir::Value* result) {
  const auto* node = result ? unshaped(*result).producer() : nullptr;
  if (!node || node->op() != "aten::sum.dim_IntList" || !ir::is_floating(result->type().dtype))
    return nullptr;
  return ir::value_of(*node, "self")->type().dtype == node->output().type().dtype ? node : nullptr;
}

}  // namespace

std::vector<at::Tensor> sums_of_magnitudes(const ir::Graph& graph, const std::vector<size_t>& results,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Generator>& generators) {
  std::vector<at::Tensor> found(results.size());
  std::vector<size_t> sums;
  for (size_t i = 0; i < results.size(); ++i)
    if (sum_behind(graph.results()[results[i]])) sums.push_back(i);
  if (sums.empty()) return found;
  ir::ValueMap map;
  auto copy = ir::clone(graph, &map);
  const size_t first = copy.results().size();
  for (size_t i = 0; i < first; ++i) copy.set_result(i, nullptr);
  for (const size_t i : sums) {
    const auto& sum = *sum_behind(graph.results()[results[i]]);
    auto* terms = map.at(ir::value_of(sum, "self"));
    auto& sizes = copy.add_node("aten::abs", {{"self", terms}}, {terms->type()});
    auto arguments = ir::mapped_arguments(sum, map);
    for (auto& argument : arguments)
      if (argument.name == "self") argument.value = &sizes.output();
    copy.add_result(&copy.add_node(sum.op(), std::move(arguments), {sum.output().type()}).output());
  }
  passes::eliminate_dead_code(copy);
  const at::NoGradGuard no_grad;
  const auto made = ref::interpret(copy, inputs, generators);
  for (size_t i = 0; i < sums.size(); ++i)
    found[sums[i]] = made[first + i].reshape(graph.results()[results[sums[i]]]->type().sizes);
  return found;
}

}  // namespace graft::verify
