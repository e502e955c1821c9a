#include "compiler/entry.h"

namespace graft {
namespace {

at::Tensor source_tensor(const Entry& entry, const Source& source, const std::vector<at::Tensor>& arguments) {
  switch (source.kind) {
    case Source::Kind::argument:
      return arguments[source.index];
    case Source::Kind::slot:
      return entry.modules->slots()[source.index].tensor();
    case Source::Kind::outside:
      return at::Tensor(entry.program->outside()[source.index].lock());
    default:
      return {};
  }
}

}  // namespace

std::optional<std::vector<at::Tensor>> Entry::bind(const std::vector<at::Tensor>& given) const {
  std::vector<at::Tensor> bound;
  const auto& sources = program->sources();
  bound.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].kind == Source::Kind::tangent) continue;
    bound.push_back(source_tensor(*this, sources[i], given));
    if (sources[i].kind != Source::Kind::argument && !inputs[i].holds(bound.back())) return std::nullopt;
  }
  return bound;
}

std::vector<std::string> guard_lines(const ArgumentGuards& arguments, const ModuleTree& modules,
                                     const std::vector<Source>& sources) {
  auto lines = arguments.to_strings();
  for (const auto& source : sources)
    if (source.kind == Source::Kind::slot) {
      const auto& slot = modules.slots()[source.index];
      lines.push_back(slot.path + ": " + TensorGuard(slot.tensor()).to_string());
    }
  lines.emplace_back(
      "grad mode, inference mode, autocast, determinism, default dtype; the module tree and its training "
      "flags");
  return lines;
}

bool Entry::holds(const detail::Flat& call, const Surroundings& now) const {
  return now == surroundings && arguments.hold(call.tensors, call.fixed) && !modules->changed();
}

std::string Entry::difference(const detail::Flat& call, const Surroundings& now) const {
  if (!(now == surroundings)) return surroundings.difference(now);
  if (!arguments.hold(call.tensors, call.fixed)) return arguments.difference(call.tensors, call.fixed);
  if (auto change = modules->changed()) return *change;
  if (!program) return "";
  const auto& sources = program->sources();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].kind == Source::Kind::tangent || sources[i].kind == Source::Kind::argument) continue;
    const auto tensor = source_tensor(*this, sources[i], call.tensors);
    if (inputs[i].holds(tensor)) continue;
    if (sources[i].kind == Source::Kind::slot)
      return modules->slots()[sources[i].index].path + ": " + inputs[i].difference(tensor);
    return "a tensor that the function reaches beside its arguments " +
           (tensor.defined() ? ": " + inputs[i].difference(tensor) : std::string("is gone"));
  }
  return "";
}

}  // namespace graft
