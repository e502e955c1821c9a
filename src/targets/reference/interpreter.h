// The graph over ATen, one operator after the other: the reference that every other target is held against,
// and the backend `aot_eager`.
#pragma once
#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <vector>

#include "ir/graph.h"
#include "runtime/executable.h"

namespace graft::ref {

/// Error for an operator that torch does not know. The graph may go afterwards.
std::unique_ptr<Executable> compile(const ir::Graph& graph, const std::vector<at::Generator>& generators);

/// Runs the graph and shows every node's results to `see`, in order: to find where two executions part.
using See = std::function<void(const ir::Node& node, const std::vector<at::Tensor>& results)>;
std::vector<at::Tensor> interpret(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Generator>& generators, const See& see = {});

}  // namespace graft::ref
