#include "runtime/waiting.h"

#include <algorithm>
#include <unordered_set>

#include "ir/op_traits.h"
#include "runtime/step_values.h"

namespace graft::runtime {

std::vector<const ir::Value*> results_that_wait(const codegen::Schedule& schedule) {
  const auto& steps = schedule.steps;
  const auto boundary = std::find_if(steps.begin(), steps.end(), [](const codegen::Step& step) {
    return step.external && step.external->op() == "graft::boundary";
  });
  if (boundary == steps.end()) return {};
  std::unordered_set<const ir::Value*> needed;
  for (auto step = boundary; step != steps.end(); ++step)
    for (const auto* value : touched_by(*step)) needed.insert(&codegen::root_of(*value));
  std::vector<const ir::Value*> waiting;
  for (auto step = steps.begin(); step != boundary; ++step) {
    if (!step->external || ir::kind_of(step->external->op()) == ir::OpKind::view) continue;
    for (const auto& output : step->external->outputs())
      if (needed.contains(output.get()) && bytes_of(output->type()) > 0) waiting.push_back(output.get());
  }
  return waiting;
}

}  // namespace graft::runtime
