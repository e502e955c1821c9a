// From a graph to something that runs: the choice of backend.
#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <vector>

#include "graft/compile.h"
#include "ir/graph.h"
#include "runtime/executable.h"
#include "runtime/scheduled.h"
#include "targets/target.h"

namespace graft {

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options, const Bindings& bindings = {});

/// For one target, whatever the devices of the graph's values say.
std::unique_ptr<Executable> build_for(const Target& target, ir::Graph graph,
                                      const std::vector<at::Generator>& generators,
                                      const CompileOptions& options, Bindings bindings = {});

}  // namespace graft
