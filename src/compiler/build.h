// From a graph to something that runs: the choice of backend.
#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <vector>

#include "graft/compile.h"
#include "ir/graph.h"
#include "runtime/executable.h"

namespace graft {

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options);

}  // namespace graft
