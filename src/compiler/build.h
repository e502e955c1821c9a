// From a graph to something that runs: the choice of backend.
#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <string>
#include <vector>

#include "graft/compile.h"
#include "ir/graph.h"
#include "runtime/executable.h"
#include "runtime/scheduled.h"

namespace graft {

/// The levels at which a program can be looked at, in the order of the pipeline: aten, core, fused, loops,
/// llvm.
const std::vector<std::string>& emit_levels();
/// The graph as it is at that level. UsageError for an unknown one.
std::string emit(ir::Graph graph, const std::string& level);
/// The same without the compiler's passes: the graph is taken for core as it is.
std::string emit_core(const ir::Graph& graph, const std::string& level);

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options, const Bindings& bindings = {});

}  // namespace graft
