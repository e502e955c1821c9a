#include "verify/cancelling_sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
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

bool is_sum_of_two(const ir::Node& node) {
  return (node.op() == "aten::add.Tensor" || node.op() == "aten::sub.Tensor") &&
         std::abs(ir::number_of(node, "alpha").value_or(1)) == 1 && ir::value_of(node, "other");
}

const ir::Node* sum_behind(const ir::Value* result, Sums which) {
  const auto* node = result ? unshaped(*result).producer() : nullptr;
  if (!node || !ir::is_floating(result->type().dtype)) return nullptr;
  const bool is_long = which == Sums::all && node->op() == "aten::sum.dim_IntList";
  if (!is_long && !is_sum_of_two(*node)) return nullptr;
  return std::ranges::all_of(
             node->inputs(),
             [&](const auto* term) { return term->type().dtype == node->output().type().dtype; })
             ? node
             : nullptr;
}

}  // namespace

std::vector<at::Tensor> sums_of_magnitudes(const ir::Graph& graph, Sums which,
                                           const std::vector<size_t>& results,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Generator>& generators) {
  std::vector<at::Tensor> found(results.size());
  std::vector<size_t> sums;
  for (size_t i = 0; i < results.size(); ++i)
    if (sum_behind(graph.results()[results[i]], which)) sums.push_back(i);
  if (sums.empty()) return found;
  ir::ValueMap map;
  auto copy = ir::clone(graph, &map);
  const size_t first = copy.results().size();
  for (size_t i = 0; i < first; ++i) copy.set_result(i, nullptr);
  for (const size_t i : sums) {
    const auto& sum = *sum_behind(graph.results()[results[i]], which);
    auto arguments = ir::mapped_arguments(sum, map);
    std::erase_if(arguments, [](const auto& argument) { return argument.name == "alpha"; });
    for (auto& argument : arguments)
      if (auto** terms = std::get_if<ir::Value*>(&argument.value); terms && *terms)
        *terms = &copy.add_node("aten::abs", {{"self", *terms}}, {(*terms)->type()}).output();
    const auto op = is_sum_of_two(sum) ? "aten::add.Tensor" : sum.op();
    copy.add_result(&copy.add_node(op, std::move(arguments), {sum.output().type()}).output());
  }
  passes::eliminate_dead_code(copy);
  const at::NoGradGuard no_grad;
  const auto made = ref::interpret(copy, inputs, generators);
  for (size_t i = 0; i < sums.size(); ++i)
    found[sums[i]] = made[first + i].reshape(graph.results()[results[sums[i]]]->type().sizes);
  return found;
}

}  // namespace graft::verify
