#include "compiler/build.h"

#include <algorithm>

#include "codegen/fusion.h"
#include "compiler/folded.h"
#include "compiler/regions.h"
#include "graft/error.h"
#include "passes/pipeline.h"
#include "passes/weight_folding.h"
#include "runtime/scheduled.h"
#include "support/env.h"
#include "support/log.h"
#include "support/stopwatch.h"
#include "target/cpu_target.h"
#include "target/ref/interpreter.h"

namespace graft {
namespace {

void refuse_other_devices(const ir::Graph& graph) {
  const auto check = [](const ir::Value& value) {
    if (value.type().device.kind != ir::Device::Kind::cpu)
      throw Error("[compile] backend=graft compiles for the CPU only so far, this function works on " +
                  ir::to_string(value.type().device) + ": use backend=aot_eager there");
  };
  for (const auto& input : graph.inputs()) check(*input);
  for (const auto& node : graph.nodes())
    for (const auto& output : node->outputs()) check(*output);
}

}  // namespace

const std::vector<std::string>& emit_levels() {
  static const std::vector<std::string> levels = {"aten", "core", "fused", "loops", "llvm"};
  return levels;
}

std::string emit(ir::Graph graph, const std::string& level) {
  if (std::find(emit_levels().begin(), emit_levels().end(), level) == emit_levels().end()) {
    std::string known;
    for (const auto& l : emit_levels()) known += (known.empty() ? "" : ", ") + l;
    throw UsageError("[compile] there is no level \"" + level + "\"; known: " + known);
  }
  if (level != "aten") passes::run_passes(passes::compile_passes(), graph);
  return emit_core(graph, level);
}

std::string emit_core(const ir::Graph& graph, const std::string& level) {
  if (level == "aten" || level == "core") return ir::to_string(graph);
  const auto schedule = codegen::schedule(graph);
  if (level == "fused") return codegen::to_string(schedule);
  if (level == "llvm") return cpu::llvm_of(schedule);
  std::string text;
  for (const auto& step : schedule.steps)
    text += step.external ? "call " + ir::to_string(*step.external) + "\n" : codegen::to_string(step.kernel);
  return text;
}

namespace {

/// From a graph of core ops.
std::unique_ptr<Executable> build_core(const ir::Graph& graph, const std::vector<at::Generator>& generators,
                                       const Bindings& bindings) {
  codegen::Schedule schedule;
  {
    const Stopwatch watch("fusion");
    schedule = codegen::schedule(graph);
  }
  if (logs(LogTopic::graph)) log(LogTopic::graph, codegen::to_string(schedule));
  CompiledKernels kernels;
  {
    const Stopwatch watch("code generation");
    kernels = cpu::compile(schedule, bindings.measuring);
  }
  const Stopwatch watch("planning");
  return make_scheduled(graph, schedule, kernels, generators, bindings);
}

std::unique_ptr<Executable> build_whole(ir::Graph graph, const std::vector<at::Generator>& generators,
                                        const CompileOptions& options, Bindings bindings) {
  if (options.backend == Backend::aot_eager) return ref::compile(graph, generators);
  {
    const Stopwatch watch("passes");
    passes::run_passes(passes::compile_passes(), graph);
  }
  bindings.measuring = {.use_cache = options.cache, .thorough = options.mode == Mode::max_autotune};
  constexpr int64_t as_much_as_the_weights = 100;
  auto folding = passes::fold_weights(graph, bindings.frozen,
                                      env_number("GRAFT_FOLD_PERCENT").value_or(as_much_as_the_weights));
  if (!folding) return build_core(graph, generators, bindings);
  if (logs(LogTopic::passes))
    log(LogTopic::passes, "fold-weights: " + std::to_string(folding->groups.size()) + " groups\n" +
                              ir::to_string(folding->main));
  for (size_t i = graph.inputs().size(); i < folding->main.inputs().size(); ++i) {
    bindings.frozen.push_back(i);
    bindings.own.push_back(i);
  }
  auto main = build_core(folding->main, generators, bindings);
  return make_folded(std::move(*folding), std::move(main), [&](const ir::Graph& group) {
    return build_core(group, generators, {.keep_results = false, .measuring = bindings.measuring});
  });
}

}  // namespace

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options, const Bindings& bindings) {
  if (logs(LogTopic::graph)) log(LogTopic::graph, ir::to_string(graph));
  if (options.backend == Backend::graft) refuse_other_devices(graph);
  if (!options.regional) return build_whole(std::move(graph), generators, options, bindings);
  return build_regions(graph, bindings.in_place, [&](ir::Graph region, std::vector<InPlace> in_place) {
    return build_whole(std::move(region), generators, options,
                       {.in_place = std::move(in_place), .keep_results = false});
  });
}

}  // namespace graft
