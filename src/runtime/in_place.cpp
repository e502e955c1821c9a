#include "runtime/in_place.h"

#include <algorithm>

#include "codegen/views.h"
#include "ir/arguments.h"
#include "runtime/step_values.h"

namespace graft::runtime {
namespace {

using codegen::root_of;
using ir::Value;

/// Some other result would change with the input, or with this one.
bool is_seen_otherwise(const ir::Graph& graph, const Value& result, const Value& input) {
  return std::any_of(graph.results().begin(), graph.results().end(), [&](const Value* other) {
    return other && (&root_of(*other) == &input || (other != &result && &root_of(*other) == &result));
  });
}

bool reads_where_it_writes(const codegen::Step& step, const Value& result, const Value& input) {
  const codegen::Index* place = nullptr;
  for (const auto& i : step.kernel.code)
    if (i.op == codegen::Op::store && step.buffers[static_cast<size_t>(i.buffer)] == &result)
      place = &i.index;
  return std::all_of(step.kernel.code.begin(), step.kernel.code.end(), [&](const codegen::Instruction& i) {
    if (i.op != codegen::Op::load || &root_of(*step.buffers[static_cast<size_t>(i.buffer)]) != &input)
      return true;
    // In a kernel of several phases an earlier store would be read by a later one.
    return step.kernel.phases <= 1 && i.indirect.empty() && i.index == *place &&
           offset_in_root(*step.buffers[static_cast<size_t>(i.buffer)]) == 0;
  });
}

/// The step that makes the result, if none after it touches the input.
const codegen::Step* last_to_touch(const codegen::Schedule& schedule, const Value& result,
                                   const Value& input) {
  const codegen::Step* maker = nullptr;
  for (const auto& step : schedule.steps) {
    const auto touched = touched_by(step);
    if (maker && std::any_of(touched.begin(), touched.end(),
                             [&](const Value* value) { return &root_of(*value) == &input; }))
      return nullptr;
    const bool makes =
        step.external ? step.external == result.producer()
                      : std::find(step.buffers.begin(), step.buffers.end(), &result) != step.buffers.end();
    if (!maker && makes) maker = &step;
  }
  return maker;
}

}  // namespace

bool kernel_may_write_into(const ir::Graph& graph, const codegen::Schedule& schedule, const Value& result,
                           const Value& input) {
  if (is_seen_otherwise(graph, result, input)) return false;
  const auto* maker = last_to_touch(schedule, result, input);
  return maker && !maker->external && reads_where_it_writes(*maker, result, input);
}

bool rows_may_be_written_into(const ir::Graph& graph, const codegen::Schedule& schedule, const Value& result,
                              const Value& input) {
  const auto& node = *result.producer();
  if (ir::value_of(node, "self") != &input || &root_of(*ir::value_of(node, "index")) == &input ||
      &root_of(*ir::value_of(node, "source")) == &input || is_seen_otherwise(graph, result, input))
    return false;
  return last_to_touch(schedule, result, input) && ir::number_of(node, "dim");
}

bool lies_in_another(const Value& result, const codegen::Schedule& schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [&](const auto& step) { return step.onto && &step.nodes.back()->output() == &result; });
}

size_t reads_of(const Value& value) {
  size_t count = 0;
  for (const auto* user : value.users()) count += codegen::view_source(*user) ? reads_of(user->output()) : 1;
  return count;
}

}  // namespace graft::runtime
