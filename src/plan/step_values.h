// Where a value of the graph lies, and what a step of the schedule has to do with it.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/fusion.h"
#include "codegen/views.h"
#include "ir/graph.h"

namespace graft::plan {

/// Elements from the start of a value's root to its own.
inline int64_t offset_in_root(const ir::Value& value) {
  int64_t offset = 0;
  for (const auto* at = &value; at->producer() && codegen::view_source(*at->producer());
       at = codegen::view_source(*at->producer()))
    offset += codegen::view_offset(*at);
  return offset;
}

/// What a step of the schedule reads or writes.
inline std::vector<const ir::Value*> touched_by(const codegen::Step& step) {
  if (!step.external) return {step.buffers.begin(), step.buffers.end()};
  const auto inputs = step.external->inputs();
  return {inputs.begin(), inputs.end()};
}

}  // namespace graft::plan
