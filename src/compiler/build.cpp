#include "compiler/build.h"

#include "compiler/lower.h"
#include "graft/error.h"
#include "runtime/folded_executable.h"
#include "runtime/regional_executable.h"
#include "support/log.h"
#include "support/stopwatch.h"
#include "targets/reference/interpreter.h"

namespace graft {
namespace {

std::unique_ptr<Executable> build_lowered(const Lowered& lowered, const Target& target,
                                          const std::vector<at::Generator>& generators,
                                          const Bindings& bindings) {
  CompiledKernels kernels;
  {
    const Stopwatch watch("code generation");
    kernels = target.compile(lowered.schedule, bindings.measuring);
  }
  const Stopwatch watch("planning");
  return make_scheduled(lowered.graph, lowered.schedule, kernels, generators, bindings,
                        target.device(ir::device_of(lowered.graph).value()));
}

std::unique_ptr<Executable> build_whole(ir::Graph graph, const std::vector<at::Generator>& generators,
                                        const CompileOptions& options, Bindings bindings) {
  if (options.backend == Backend::aot_eager) return ref::compile(graph, generators);
  const auto& target = target_of(graph);
  return build_for(target, std::move(graph), generators, options, std::move(bindings));
}

}  // namespace

std::unique_ptr<Executable> build_for(const Target& target, ir::Graph graph,
                                      const std::vector<at::Generator>& generators,
                                      const CompileOptions& options, Bindings bindings) {
  bindings.measuring = {.use_cache = options.cache, .thorough = options.mode == Mode::max_autotune};
  bindings.record = options.mode != Mode::default_;
  const size_t inputs = graph.inputs().size();
  auto lowered = lower(std::move(graph), target, bindings.frozen, bindings.neighbours);
  // The values of groups are the program's own.
  for (size_t i = inputs; i < lowered.graph.inputs().size(); ++i) {
    bindings.frozen.push_back(i);
    bindings.own.push_back(i);
  }
  auto main = build_lowered(lowered, target, generators, bindings);
  if (lowered.groups.empty()) return main;
  return make_folded({std::move(lowered.graph), std::move(lowered.groups)}, std::move(main),
                     [&](ir::Graph group) {
                       return build_lowered(lower_core(std::move(group), target), target, generators,
                                            {.keep_results = false, .measuring = bindings.measuring});
                     });
}

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options, const Bindings& bindings) {
  if (logs(LogTopic::graph)) log(LogTopic::graph, ir::to_string(graph));
  if (options.backend == Backend::graft)
    if (const auto why = target_of(graph).missing(); !why.empty()) throw Error("[compile] " + why);
  if (!options.regional) return build_whole(std::move(graph), generators, options, bindings);
  return build_regions(graph, bindings.in_place, [&](ir::Graph region, std::vector<InPlace> in_place) {
    return build_whole(std::move(region), generators, options,
                       {.in_place = std::move(in_place), .keep_results = false});
  });
}

}  // namespace graft
