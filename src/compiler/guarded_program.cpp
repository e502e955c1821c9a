#include "compiler/guarded_program.h"

#include <algorithm>
#include <unordered_set>

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
  if (memory && !memory->holds(bound)) return std::nullopt;
  return bound;
}

bool Entry::has_new_tensors(const std::vector<at::Tensor>& given) const {
  for (size_t i = 0; i < pinned.size(); ++i)
    if (!pinned[i].free.load(std::memory_order_acquire) &&
        pinned[i].tensor._unsafe_get_target() != given[i].unsafeGetTensorImpl())
      return true;
  return false;
}

bool Entry::has_moved_tensors(const std::vector<at::Tensor>& given) const {
  for (size_t i = 0; i < pinned.size(); ++i)
    for (size_t k = 0; k < given.size(); ++k)
      if (i != k && given[k].defined() &&
          pinned[i].tensor._unsafe_get_target() == given[k].unsafeGetTensorImpl())
        return true;
  return false;
}

bool Entry::coincide(const std::vector<at::Tensor>& bound) const {
  std::unordered_set<const c10::TensorImpl*> seen;
  return !std::all_of(bound.begin(), bound.end(), [&](const at::Tensor& tensor) {
    return !tensor.defined() || seen.insert(tensor.unsafeGetTensorImpl()).second;
  });
}

void guard_inputs(const Capture& captured, const std::vector<at::Tensor>& arguments, Entry& entry) {
  entry.inputs.resize(captured.sources.size());
  std::vector<size_t> from_arguments, written;
  const bool by_storage = counts_from_storage(captured.graph);
  const auto guard = [&](size_t i, const at::Tensor& tensor, bool any_requires_grad) {
    entry.inputs[i] = TensorGuard(tensor, any_requires_grad);
    if (by_storage) entry.inputs[i].guard_offset(tensor);
  };
  for (size_t i = 0; i < captured.sources.size(); ++i) {
    const auto& source = captured.sources[i];
    if (source.kind == Source::Kind::argument) from_arguments.push_back(i);
    if (source.kind == Source::Kind::slot) {
      const auto& slot = entry.modules->slots()[source.index];
      // Without gradients nobody asks who wants one, but for a view of it.
      const bool is_seen = std::any_of(
          captured.outputs.begin(), captured.outputs.end(),
          [&](const Output& output) { return output.kind == Output::Kind::view && output.index == i; });
      guard(i, slot.tensor(), slot.at_times || (!at::GradMode::is_enabled() && !is_seen));
    }
    if (source.kind == Source::Kind::outside)
      guard(i, at::Tensor(captured.outside[source.index].lock()), false);
  }
  if (by_storage) entry.arguments.guard_offsets(arguments);
  for (const auto& mutation : captured.mutations) written.push_back(mutation.input);
  entry.memory = std::make_unique<MemoryGuard>(std::move(written), std::move(from_arguments));

  const auto& slots = entry.modules->slots();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) {
      entry.pinned.emplace_back(c10::weak_intrusive_ptr<c10::TensorImpl>(arguments[i].getIntrusivePtr()))
          .free = true;
      continue;
    }
    entry.pinned.emplace_back(c10::weak_intrusive_ptr<c10::TensorImpl>(arguments[i].getIntrusivePtr()));
    for (size_t k = 0; k < slots.size(); ++k)
      if (slots[k].tensor().is_same(arguments[i])) entry.also_slots.push_back({i, k});
  }
}

std::vector<std::string> guard_lines(const ArgumentGuards& arguments, const ModuleTree& modules,
                                     const std::vector<Source>& sources,
                                     const std::vector<StateRead>& states) {
  auto lines = arguments.to_strings();
  for (const auto& source : sources)
    if (source.kind == Source::Kind::slot) {
      const auto& slot = modules.slots()[source.index];
      lines.push_back(slot.path + ": " + TensorGuard(slot.tensor()).to_string());
    }
  lines.emplace_back(
      "grad mode, inference mode, autocast, determinism, default dtype; the module tree and its training "
      "flags");
  for (const auto& read : states) lines.emplace_back(read.what);
  return lines;
}

bool Entry::holds(const detail::Flat& call, const Surroundings& now) const {
  return now == surroundings && arguments.hold(call.tensors, call.fixed) && !modules->changed() &&
         std::all_of(states.begin(), states.end(), [](const StateRead& read) { return read.holds(); }) &&
         std::all_of(also_slots.begin(), also_slots.end(),
                     [&](const AlsoSlot& both) {
                       return call.tensors[both.argument].is_same(modules->slots()[both.slot].tensor());
                     }) &&
         (!pins_are_guards.load(std::memory_order_acquire) || !has_new_tensors(call.tensors));
}

std::string Entry::difference(const detail::Flat& call, const Surroundings& now) const {
  if (!(now == surroundings)) return surroundings.difference(now);
  if (!arguments.hold(call.tensors, call.fixed)) return arguments.difference(call.tensors, call.fixed);
  if (auto change = modules->changed()) return *change;
  for (const auto& read : states)
    if (!read.holds()) return std::string(read.what) + " changed";
  for (const auto& both : also_slots)
    if (!call.tensors[both.argument].is_same(modules->slots()[both.slot].tensor()))
      return "argument " + std::to_string(both.argument) + " was " + modules->slots()[both.slot].path +
             " itself, and is another tensor";
  if (pins_are_guards && has_new_tensors(call.tensors))
    return "an argument was a tensor that the function also reaches in another way, and is another one";
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
  if (!bind(call.tensors)) return "an input that the function writes to shares memory with another one";
  return "";
}

}  // namespace graft
