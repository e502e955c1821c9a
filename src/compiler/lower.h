// The way of a graph to kernels and calls. All who ask what becomes of a graph go this one way: who builds
// it, who prints a level of it, who explains it.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "codegen/fusion.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "passes/weight_folding.h"
#include "targets/target.h"

namespace graft {

/// The target for the graph's device. Error where there is none, and for a graph over several devices in
/// addition to the CPU.
const Target& target_of(const ir::Graph& graph);

/// The passes that a graph goes through before it is cut into kernels.
std::vector<passes::Pass> passes_for(const Target& target, const passes::Neighbours& neighbours = {});

struct Lowered {
  /// Of core operators. With `groups`, what is left for each call: their values are its last inputs.
  ir::Graph graph;
  codegen::Schedule schedule;  ///< of it
  std::vector<passes::Folding::Group> groups;
};

/// `frozen` are the inputs that seldom change: what depends on them alone is computed in groups. `neighbours`
/// follow each other in memory.
Lowered lower(ir::Graph graph, const Target& target, const std::vector<size_t>& frozen = {},
              const passes::Neighbours& neighbours = {});
/// The same for a graph that is of core operators already.
Lowered lower_core(ir::Graph graph, const Target& target);

/// The levels at which a program can be looked at, in the order of the pipeline: aten, core, fused, loops,
/// and those of the targets.
const std::vector<std::string>& emit_levels();
/// UsageError for a level that there is not.
void check_level(const std::string& level);
/// At a level after `aten`.
std::string emit(const Lowered& lowered, const Target& target, const std::string& level);

}  // namespace graft
