// All passes over graphs, in order. Each can be left out by name (GRAFT_PASSES_OFF), is timed, and is
// followed by the verifier.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace graft::passes {

struct Pass {
  std::string_view name;
  void (*run)(ir::Graph&);
};

/// On the joint graph of forward and backward, before it is cut.
const std::vector<Pass>& joint_passes();
/// The same where both become kernels.
const std::vector<Pass>& joint_kernel_passes();
/// On each graph that is compiled.
const std::vector<Pass>& compile_passes();
/// Any of them; null for an unknown name.
const Pass* find_pass(std::string_view name);

/// Runs one: unless it is switched off; logs what it changed and how long it took; verifies.
void run_pass(const Pass& pass, ir::Graph& graph);
void run_passes(const std::vector<Pass>& passes, ir::Graph& graph);

}  // namespace graft::passes
