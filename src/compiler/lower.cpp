#include "compiler/lower.h"

#include <algorithm>

#include "codegen/side_by_side.h"
#include "graft/error.h"
#include "support/env.h"
#include "support/log.h"
#include "support/stopwatch.h"
#include "targets/targets.h"

namespace graft {

const Target& target_of(const ir::Graph& graph) {
  const auto device = ir::device_of(graph);
  if (!device)
    throw Error(
        "[compile] backend=graft compiles for one device at a time, and this function works on several: "
        "compile the part for each on its own, or use backend=aot_eager");
  return target_for(*device);
}

std::vector<passes::Pass> passes_for(const Target& target, const passes::Neighbours& neighbours) {
  return passes::compile_passes(target.facts(), neighbours);
}

Lowered lower_core(ir::Graph graph, const Target& target) {
  Lowered lowered{.graph = std::move(graph)};
  const Stopwatch watch("fusion");
  lowered.schedule = codegen::schedule(lowered.graph, target.limits());
  codegen::put_side_by_side(lowered.graph, lowered.schedule,
                            [&](const codegen::Kernel& kernel) { return target.launch_kind(kernel); });
  if (logs(LogTopic::graph)) log(LogTopic::graph, codegen::to_string(lowered.schedule));
  return lowered;
}

Lowered lower(ir::Graph graph, const Target& target, const std::vector<size_t>& frozen,
              const passes::Neighbours& neighbours) {
  {
    const Stopwatch watch("passes");
    passes::run_passes(passes_for(target, neighbours), graph);
  }
  if (!target.facts().folds_weights) return lower_core(std::move(graph), target);
  constexpr int64_t as_much_as_the_weights = 100;
  auto folding =
      passes::fold_weights(graph, frozen, env_number("GRAFT_FOLD_PERCENT").value_or(as_much_as_the_weights));
  if (!folding) return lower_core(std::move(graph), target);
  if (logs(LogTopic::passes))
    log(LogTopic::passes, "fold-weights: " + std::to_string(folding->groups.size()) + " groups\n" +
                              ir::to_string(folding->main));
  auto lowered = lower_core(std::move(folding->main), target);
  lowered.groups = std::move(folding->groups);
  return lowered;
}

const std::vector<std::string>& emit_levels() {
  static const auto levels = [] {
    std::vector<std::string> all = {"aten", "core", "fused", "loops"};
    const auto code = code_levels();
    all.insert(all.end(), code.begin(), code.end());
    return all;
  }();
  return levels;
}

namespace {

std::string joined_levels(const std::vector<std::string>& levels) {
  std::string text;
  for (const auto& level : levels) text += (text.empty() ? "" : ", ") + level;
  return text;
}

}  // namespace

void check_level(const std::string& level) {
  if (std::ranges::find(emit_levels(), level) != emit_levels().end()) return;
  throw UsageError("[compile] there is no level \"" + level + "\"; known: " + joined_levels(emit_levels()));
}

std::string emit(const Lowered& lowered, const Target& target, const std::string& level) {
  check_level(level);
  if (level == "aten" || level == "core") return ir::to_string(lowered.graph);
  if (level == "fused") return codegen::to_string(lowered.schedule);
  if (level != "loops") {
    if (std::ranges::find(target.code_levels(), level) == target.code_levels().end())
      throw UsageError("[compile] level \"" + level + "\" is not one of the target " +
                       std::string(target.name()) + ", which has \"" + joined_levels(target.code_levels()) +
                       "\"");
    return target.code(lowered.schedule, level);
  }
  std::string text;
  for (const auto& step : lowered.schedule.steps)
    text += step.external ? "call " + ir::to_string(*step.external) + "\n" : codegen::to_string(step.kernel);
  return text;
}

}  // namespace graft
