#include "verify/derived_results.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <unordered_map>
#include <unordered_set>

#include "ir/clone.h"
#include "ir/op_traits.h"
#include "targets/reference/interpreter.h"

namespace graft::verify {
namespace {

using KnownValues = std::unordered_map<const ir::Value*, at::Tensor>;

/// The nodes between a result and what is known, each after those it needs.
class NodesBetween {
 public:
  NodesBetween(const ir::Value& result, const KnownValues& known) : result_(result), known_(known) {
    reach(result);
  }

  /// Empty where they are many, or one draws random numbers.
  std::vector<const ir::Node*> nodes() const { return few_ ? ordered_ : std::vector<const ir::Node*>(); }

 private:
  void reach(const ir::Value& value) {
    constexpr size_t few = 64;
    const auto* node = value.producer();
    if (!few_ || !node || (&value != &result_ && known_.contains(&value))) return;
    if (!seen_.insert(node).second) return;
    few_ = seen_.size() <= few && !ir::must_run(*node);
    for (const auto* input : node->inputs()) reach(*input);
    ordered_.push_back(node);
  }

  const ir::Value& result_;
  const KnownValues& known_;
  std::unordered_set<const ir::Node*> seen_;
  std::vector<const ir::Node*> ordered_;
  bool few_ = true;
};

}  // namespace

at::Tensor recompute_from_results(const ir::Graph& graph, size_t result,
                                  const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& known) {
  const auto* wanted = graph.results()[result];
  if (!wanted) return {};
  KnownValues given;
  for (size_t i = 0; i < graph.inputs().size(); ++i) given[graph.inputs()[i].get()] = inputs[i];
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i].defined() && graph.results()[i] != wanted) given[graph.results()[i]] = known[i];
  const auto nodes = NodesBetween(*wanted, given).nodes();
  if (nodes.empty()) return {};

  ir::Graph slice;
  ir::ValueMap map;
  std::vector<at::Tensor> slice_inputs;
  for (const auto* node : nodes) {
    for (const auto* input : node->inputs()) {
      if (map.contains(input)) continue;
      map[input] = &slice.add_input("x" + std::to_string(slice_inputs.size()), input->type());
      slice_inputs.push_back(given.at(input).detach());
    }
    // What is known stays as it is given, also where a sibling of it had to be computed.
    ir::copy_node(*node, slice, map);
  }
  slice.add_result(map.at(wanted));
  const at::NoGradGuard no_grad;
  try {
    return ref::interpret(slice, slice_inputs, {}).front();
  } catch (const c10::Error&) {
    return {};  // what it says about results is then left to the judge that runs all of it
  }
}

}  // namespace graft::verify
