#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "decomp/decompose.h"
#include "ir/verifier.h"
#include "passes/common_subexpressions.h"
#include "passes/dead_code.h"
#include "passes/early_gather.h"
#include "passes/few_queries.h"
#include "passes/float_products.h"
#include "passes/low_rank_siblings.h"
#include "passes/narrow_siblings.h"
#include "passes/plain_creation.h"
#include "passes/sums_into_products.h"
#include "passes/sums_into_scatters.h"
#include "passes/wide_products.h"
#include "passes/written_slices.h"
#include "support/env.h"
#include "support/log.h"

namespace graft::passes {

const std::vector<Pass>& joint_passes() {
  static const std::vector<Pass> passes = {
      // First of all, so that the cut does not save a tensor for the sake of its shape.
      {"plain-creation", make_creation_plain},
      {"dead-code", eliminate_dead_code},
      // No common subexpressions here: checkpointing computes twice on purpose.
  };
  return passes;
}

const std::vector<Pass>& joint_kernel_passes() {
  static const std::vector<Pass> passes = {
      {"plain-creation", make_creation_plain},
      // Of a normalisation the cut then sees what is small, to be saved, and what kernels compute in passing.
      {"decompose", decomp::decompose},
      {"dead-code", eliminate_dead_code},
  };
  return passes;
}

std::vector<Pass> compile_passes(const TargetFacts& target, const Neighbours& neighbours) {
  const auto known = target.joins_adjacent ? neighbours : Neighbours{};
  return {
      {"plain-creation", make_creation_plain},
      // As the keys are repeated by whom attention is called.
      {"few-queries",
       [queries = target.few_queries](ir::Graph& graph) { attend_with_few_queries(graph, queries); }},
      {"decompose", decomp::decompose},
      // Before the next pass makes kernels of them: each reads what it multiplies with anew.
      {"few-row-siblings", [known, rows = target.rows_of_a_kernel](
                               ir::Graph& graph) { join_few_row_siblings(graph, known, rows); }},
      // Before equal casts of what several products read become one.
      {"wide-products", [slow = target.products_are_slow, rows = target.rows_of_a_kernel](
                            ir::Graph& graph) { widen_products(graph, slow, rows); }},
      // Slices that it makes may be equal.
      {"written-slices", join_written_slices},
      // A cross entropy shows its gather only when it is decomposed.
      {"early-gather", gather_early},
      // After decomposing: two layer norms of one tensor share their mean.
      {"common-subexpressions", merge_common_subexpressions},
      {"narrow-siblings",
       [width = target.narrow_product](ir::Graph& graph) { join_narrow_siblings(graph, width); }},
      {"adjacent-siblings", [known, rows = target.rows_of_a_kernel](
                                ir::Graph& graph) { join_adjacent_siblings(graph, known, rows); }},
      {"low-rank-siblings",
       [halves = target.halves_low_rank](ir::Graph& graph) { split_low_rank_adds(graph, halves); }},
      // What is joined before is read once.
      {"float-products", [side = target.short_side](ir::Graph& graph) { use_float_products(graph, side); }},
      {"sums-into-products", fold_sums_into_products},
      {"sums-into-scatters", fold_sums_into_scatters},
      {"dead-code", eliminate_dead_code},
  };
}

const std::vector<std::string_view>& pass_names() {
  static const auto names = [] {
    std::vector<std::string_view> all;
    for (const auto& list : {joint_passes(), joint_kernel_passes(), compile_passes({})})
      for (const auto& pass : list)
        if (std::ranges::find(all, pass.name) == all.end()) all.push_back(pass.name);
    return all;
  }();
  return names;
}

namespace {

bool switched_off(std::string_view name) {
  static const auto off = env_words("GRAFT_PASSES_OFF", pass_names());
  return std::find(off.begin(), off.end(), name) != off.end();
}

}  // namespace

void run_pass(const Pass& pass, ir::Graph& graph) {
  if (switched_off(pass.name)) return;
  const bool logging = logs(LogTopic::passes);
  const auto before = logging ? ir::to_string(graph) : std::string();
  const auto start = std::chrono::steady_clock::now();
  pass.run(graph);
  const auto took =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ir::verify(graph);
  if (!logging) return;
  const auto after = ir::to_string(graph);
  log(LogTopic::passes, std::string(pass.name) + ": " + std::to_string(took) + " ms" +
                            (before == after ? ", no change" : "\n" + after));
}

void run_passes(const std::vector<Pass>& passes, ir::Graph& graph) {
  for (const auto& pass : passes) run_pass(pass, graph);
}

}  // namespace graft::passes
