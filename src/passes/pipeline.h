// All passes over graphs, in order. Each can be left out by name (GRAFT_PASSES_OFF), is timed, and is
// followed by the verifier.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/adjacent_siblings.h"

namespace graft::passes {

struct Pass {
  std::string_view name;
  std::function<void(ir::Graph&)> run;
};

/// What the passes ask of the target that a graph is compiled for.
struct TargetFacts {
  /// Whether its products of a half type take many times as long as those of float32 (wide_products.h).
  std::function<bool(ir::DType)> products_are_slow = [](ir::DType) { return false; };
  /// Products of a half type with at most so many rows are kernels of their own (wide_products.h).
  std::function<int64_t(ir::DType)> rows_of_a_kernel = [](ir::DType) { return 0; };
  /// Products with at most so many columns are worth joining (narrow_siblings.h).
  int64_t narrow_product = 0;
  /// Whether products with weights that follow each other in memory are worth joining (adjacent_siblings.h).
  bool joins_adjacent = false;
  /// Products in floats with a side of at most so many have kernels that read halves (float_products.h).
  int64_t short_side = 0;
  /// Whether the adapters of a layer are kernels in two halves (low_rank_siblings.h).
  bool halves_low_rank = false;
  /// Attention of at most so many queries has a kernel (few_queries.h).
  int64_t few_queries = 0;
  /// What follows from weights alone is computed once for each state of them (weight_folding.h). The host has
  /// to look at their memory for that: some are written past their versions.
  bool folds_weights = false;
};

/// On the joint graph of forward and backward, before it is cut.
const std::vector<Pass>& joint_passes();
/// The same where both become kernels.
const std::vector<Pass>& joint_kernel_passes();
/// On each graph that is compiled.
std::vector<Pass> compile_passes(const TargetFacts& target, const Neighbours& neighbours = {});
/// The names of all of them, each once, in the order in which they run.
const std::vector<std::string_view>& pass_names();

/// Runs one: unless it is switched off; logs what it changed and how long it took; verifies.
void run_pass(const Pass& pass, ir::Graph& graph);
void run_passes(const std::vector<Pass>& passes, ir::Graph& graph);

}  // namespace graft::passes
