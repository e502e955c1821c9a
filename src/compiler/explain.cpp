#include "compiler/explain.h"

#include <sstream>

#include "compiler/check.h"
#include "compiler/checked_call.h"

namespace graft {

std::string explain(const detail::Flat& call, const detail::Original& original,
                    const std::vector<std::shared_ptr<torch::nn::Module>>& roots, const CompileOptions& options,
                    const std::string& level) {
  std::ostringstream text;
  const auto modules = std::make_shared<ModuleTree>(roots);
  const RandomState before({}, call.tensors);
  std::optional<Capture> captured;
  try {
    if (call.refused) throw GraphBreak(std::string("[capture] ") + call.refused);
    std::shared_ptr<const void> frame;
    captured = detail::capture_call(call, original, *modules, frame);
  } catch (const GraphBreak& found) {
    before.restore();
    text << "graphs: 0\ngraph breaks: 1\n  " << found.reason() << "\n" << found.backtrace();
    return text.str();
  }
  before.restore();
  const auto captured_text = ir::to_string(captured->graph);
  const size_t nodes = captured->graph.nodes().size();
  const Program program(*captured, options);
  text << "graphs: 1 (" << nodes << " nodes" << (program.trains() ? ", forward and backward" : "") << ")\n"
       << "graph breaks: 0\n";
  int64_t kernels = 0, calls = 0;
  for (const auto* executable : program.executables()) {
    kernels += executable->kernels();
    calls += executable->extern_calls();
  }
  text << "kernels: " << kernels << "\nextern calls: " << calls << "\nguards:\n";
  for (const auto& line : ArgumentGuards(call.tensors, call.fixed).to_strings()) text << "  " << line << "\n";
  for (size_t i = 0; i < program.sources().size(); ++i)
    if (program.sources()[i].kind == Source::Kind::slot) {
      const auto& slot = modules->slots()[program.sources()[i].index];
      text << "  " << slot.path << ": " << TensorGuard(slot.tensor()).to_string() << "\n";
    }
  for (const auto* executable : program.executables()) text << executable->describe() << "\n";
  if (level == "aten") text << captured_text;
  return text.str();
}

}  // namespace graft
