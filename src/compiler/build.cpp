#include "compiler/build.h"

#include "codegen/fusion.h"
#include "graft/error.h"
#include "passes/pipeline.h"
#include "runtime/scheduled.h"
#include "support/log.h"
#include "target/cpu/launch.h"
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

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options) {
  if (logs(LogTopic::graph)) log(LogTopic::graph, ir::to_string(graph));
  if (options.backend == Backend::aot_eager) return ref::compile(graph, generators);
  refuse_other_devices(graph);
  passes::run_passes(passes::compile_passes(), graph);
  const auto schedule = codegen::schedule(graph);
  if (logs(LogTopic::graph)) log(LogTopic::graph, codegen::to_string(schedule));
  return make_scheduled(graph, schedule, cpu::compile(schedule, options.cache), generators);
}

}  // namespace graft
