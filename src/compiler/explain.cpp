#include "compiler/explain.h"

#include <map>
#include <sstream>

#include "compiler/guarded_program.h"
#include "compiler/lower.h"
#include "compiler/program.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "verify/generator_states.h"
#include "verify/watched_call.h"

namespace graft {
namespace {

/// Why a call has no kernel.
std::string reason_for(const ir::Node& node, const Target& target) {
  const auto kind = ir::kind_of(node.op());
  switch (kind) {
    case ir::OpKind::matmul:
      return "a matrix product: " + std::string(target.library_for(kind));
    case ir::OpKind::convolution:
      return "a convolution: " + std::string(target.library_for(kind));
    case ir::OpKind::attention:
      return "attention: ATen's fused kernel";
    case ir::OpKind::random:
      return "draws random numbers: the same stream as eager";
    default:
      return "has no lowering";
  }
}

void explain_graph(std::ostream& text, const char* name, const ir::Graph& graph, const Bindings& bindings,
                   const std::string& level) {
  const auto& target = target_of(graph);
  const auto lowered = lower(ir::clone(graph), target, bindings.frozen, bindings.neighbours);
  const auto& schedule = lowered.schedule;
  std::map<std::string, std::pair<int, std::string>> calls;
  size_t kernels = 0, launches = 0;
  for (const auto& step : schedule.steps) {
    if (!step.external) {
      ++kernels;
      if (!step.with_last) ++launches;
      continue;
    }
    auto& [count, why] = calls[step.external->op()];
    ++count, why = reason_for(*step.external, target);
  }
  text << name << ": " << graph.nodes().size() << " operators as captured, " << launches
       << " kernel launches, " << schedule.steps.size() - kernels << " calls\n";
  for (const auto& [op, call] : calls)
    text << "  " << call.first << " x " << op << " (" << call.second << ")\n";
  if (!lowered.groups.empty())
    text << "  " << lowered.groups.size()
         << " groups of values are made from weights alone, when these change\n";
  if (!level.empty()) text << (level == "aten" ? ir::to_string(graph) : emit(lowered, target, level));
}

/// What the function did is undone.
GraphOrBreaks graph_or_breaks(const detail::FlatArguments& call, const detail::EagerFunction& original,
                              const ModuleTree& modules, const CompileOptions& options) {
  if (call.refused) return {std::nullopt, {std::string("[capture] ") + call.refused}};
  const verify::GeneratorStates before({}, call.tensors);
  const Traceable traceable = [&](const std::vector<at::Tensor>& tensors) {
    return original(tensors).tensors;
  };
  CaptureRequest request{&traceable, call.tensors, &modules, at::GradMode::is_enabled()};
  request.ignores_printing = options.fullgraph;
  try {
    auto found = capture_or_list_breaks(std::move(request));
    before.restore();
    return found;
  } catch (...) {
    before.restore();
    throw;
  }
}

}  // namespace

std::string explain(const detail::FlatArguments& call, const detail::EagerFunction& original,
                    const std::vector<std::shared_ptr<torch::nn::Module>>& roots,
                    const CompileOptions& options, const std::string& level, const std::string& known_break) {
  std::ostringstream text;
  if (!level.empty()) check_level(level);  // an error before any work
  const auto modules = std::make_shared<ModuleTree>(roots);
  const StateReads reads;
  auto found = graph_or_breaks(call, original, *modules, options);
  if (found.graph && reads.left_changed()) found = {std::nullopt, {verify::changes_state}};
  if (found.graph && !known_break.empty()) found = {std::nullopt, {known_break}};
  if (!found.graph) {
    text << "graphs: 0\ngraph breaks: " << found.breaks.size() << "\n";
    for (const auto& each : found.breaks) text << "  " << each << "\n";
    return text.str();
  }
  const auto& captured = found.graph;
  const auto parts = program_graphs(*captured, options.backend);
  text << "graphs: 1\ngraph breaks: 0\nguards:\n";
  for (const auto& line : guard_lines(ArgumentGuards(call.tensors, call.fixed), *modules, captured->sources,
                                      modules->beyond(reads.reads())))
    text << "  " << line << "\n";
  if (!captured->assumptions.empty())
    text << "taken for granted, and compared in each call: " << captured->assumptions.size()
         << " answers of equal, allclose or bincount\n";
  explain_graph(text, parts.backward ? "forward" : "graph", parts.forward,
                forward_bindings(*captured, parts, options), level);
  if (parts.backward) explain_graph(text, "backward", *parts.backward, {}, level);
  const Program program(*captured, options);
  for (const auto* executable : program.executables()) text << executable->describe() << "\n";
  return text.str();
}

}  // namespace graft
