#include "compiler/guarded_program.h"

#include <algorithm>
#include <unordered_set>

#include "support/log.h"
#include "verify/watched_call.h"

namespace graft {
namespace {

at::Tensor source_tensor(const GuardedProgram& guarded, const Source& source,
                         const std::vector<at::Tensor>& arguments) {
  switch (source.kind) {
    case Source::Kind::argument:
      return arguments[source.index];
    case Source::Kind::slot:
      return guarded.modules->slots()[source.index].tensor();
    case Source::Kind::outside:
      return at::Tensor(guarded.program->captured().outside[source.index].lock());
    case Source::Kind::number:
      return number_in(*guarded.program->captured().trace,
                       guarded.program->captured().told.numbers[source.index]);
    default:
      return {};
  }
}

/// What stands in the call, or is computed for each.
bool is_guarded(const Source& source) {
  return source.kind == Source::Kind::slot || source.kind == Source::Kind::outside;
}

/// Whether the same operators read other inputs somewhere.
bool reads_other_inputs(const ir::Graph& now, const ir::Graph& then) {
  if (now.nodes().size() != then.nodes().size()) return false;
  const auto are_same = [](const ir::Value* x, const ir::Value* y) {
    return x->producer() || y->producer() || x->index() == y->index();
  };
  return !std::ranges::equal(now.nodes(), then.nodes(), [&](const auto& a, const auto& b) {
    const auto x = a->inputs(), y = b->inputs();
    // Something else altogether is not the question.
    return a->op() != b->op() || x.size() != y.size() || std::ranges::equal(x, y, are_same);
  });
}

}  // namespace

bool has_other_inputs(const CapturedFunction& now, const CapturedFunction& then) {
  const auto by_input = [](const Output& output) {
    return output.kind == Output::Kind::input || output.kind == Output::Kind::view;
  };
  const auto same_output = [&](const Output& a, const Output& b) {
    return by_input(a) ? by_input(b) && a.index == b.index : !by_input(b);
  };
  const auto same_mutation = [](const Mutation& a, const Mutation& b) { return a.input == b.input; };
  return now.sources != then.sources || reads_other_inputs(now.graph, then.graph) ||
         !std::ranges::equal(now.outputs, then.outputs, same_output) ||
         !std::ranges::equal(now.mutations, then.mutations, same_mutation);
}

bool uses_other_outside_tensors(const CapturedFunction& now, const CapturedFunction& then) {
  return !std::ranges::equal(now.outside, then.outside, [](const auto& a, const auto& b) {
    return a._unsafe_get_target() == b._unsafe_get_target();
  });
}

bool does_something_else(const CapturedFunction& now, const CapturedFunction& then) {
  return !verify::is_same_path(then, now) || uses_other_outside_tensors(now, then);
}

std::optional<ToldInputs> told_to_serve_both(const CapturedFunction& now, const CapturedFunction& then) {
  if (!then.trace || !now.trace || !then.trace->refused.empty() || !now.trace->refused.empty() ||
      now.sources != then.sources)
    return std::nullopt;
  const auto numbers = differing_numbers(*then.trace, *now.trace);
  if (!numbers) return std::nullopt;
  auto told = then.told;
  told.numbers.insert(told.numbers.end(), numbers->begin(), numbers->end());
  size_t elsewhere = 0;
  for (const auto& source : now.sources) {
    if (source.kind == Source::Kind::outside &&
        now.outside[source.index]._unsafe_get_target() != then.outside[source.index]._unsafe_get_target())
      told.tensors.push_back(elsewhere);
    elsewhere += source.kind == Source::Kind::outside || source.kind == Source::Kind::told ? 1 : 0;
  }
  std::ranges::sort(told.tensors);
  return told;
}

detail::FlatArguments with_state(const detail::FlatArguments& call, const State& state) {
  auto all = call;
  detail::CollectLeaves collect(all);
  state.visit(collect);
  return all;
}

void GuardedProgram::note_same_path() {
  if (watches_left.load(std::memory_order_relaxed) == 0) return;
  if (watches_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (replays.note_false_alarm()) return;
  log(LogTopic::breaks, "[replay] not possible: the function does the same, and seems to do something else");
  not_replayable = true;
}

std::optional<std::vector<at::Tensor>> GuardedProgram::bind(const std::vector<at::Tensor>& given) const {
  std::vector<at::Tensor> bound;
  const auto& sources = program->captured().sources;
  bound.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].kind == Source::Kind::tangent) continue;
    bound.push_back(source_tensor(*this, sources[i], given));
    if (is_guarded(sources[i]) && !inputs[i].holds(bound.back())) return std::nullopt;
  }
  if (memory && !memory->holds(bound)) return std::nullopt;
  return bound;
}

bool GuardedProgram::has_new_tensors(const std::vector<at::Tensor>& given) const {
  for (size_t i = 0; i < pinned.size(); ++i)
    if (!pinned[i].free.load(std::memory_order_acquire) &&
        pinned[i].tensor._unsafe_get_target() != given[i].unsafeGetTensorImpl())
      return true;
  return false;
}

void GuardedProgram::free_pins(const std::vector<at::Tensor>& given) {
  for (size_t i = 0; i < pinned.size(); ++i)
    if (pinned[i].tensor._unsafe_get_target() != given[i].unsafeGetTensorImpl())
      pinned[i].free.store(true, std::memory_order_release);
}

bool GuardedProgram::has_moved_tensors(const std::vector<at::Tensor>& given) const {
  for (size_t i = 0; i < pinned.size(); ++i)
    for (size_t k = 0; k < given.size(); ++k)
      if (i != k && given[k].defined() &&
          pinned[i].tensor._unsafe_get_target() == given[k].unsafeGetTensorImpl())
        return true;
  return false;
}

bool GuardedProgram::has_duplicates(const std::vector<at::Tensor>& bound) const {
  std::unordered_set<const c10::TensorImpl*> seen;
  return !std::all_of(bound.begin(), bound.end(), [&](const at::Tensor& tensor) {
    return !tensor.defined() || seen.insert(tensor.unsafeGetTensorImpl()).second;
  });
}

bool GuardedProgram::has_other_flags() const {
  if (!program) return false;
  const auto& sources = program->captured().sources;
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i].kind == Source::Kind::slot &&
        inputs[i].has_other_flags(modules->slots()[sources[i].index].tensor()))
      return true;
  return false;
}

void guard_inputs(const Capture& captured, const std::vector<at::Tensor>& arguments,
                  GuardedProgram& guarded) {
  guarded.inputs.resize(captured.sources.size());
  std::vector<size_t> from_arguments, written;
  std::vector<at::Tensor> tensors(captured.sources.size());
  const bool by_storage = counts_from_storage(captured.graph);
  const auto guard = [&](size_t i, const at::Tensor& tensor, bool any_requires_grad) {
    guarded.inputs[i] = TensorGuard(tensor, any_requires_grad);
    tensors[i] = tensor;
    if (by_storage) guarded.inputs[i].guard_offset(tensor);
  };
  for (size_t i = 0; i < captured.sources.size(); ++i) {
    const auto& source = captured.sources[i];
    if (source.kind == Source::Kind::argument) {
      from_arguments.push_back(i);
      tensors[i] = arguments[source.index];
    }
    if (source.kind == Source::Kind::slot) {
      const auto& slot = guarded.modules->slots()[source.index];
      // Without gradients nobody asks who wants one, but for a view of it.
      const bool is_seen = std::any_of(
          captured.outputs.begin(), captured.outputs.end(),
          [&](const Output& output) { return output.kind == Output::Kind::view && output.index == i; });
      guard(i, slot.tensor(), slot.at_times || (!at::GradMode::is_enabled() && !is_seen));
    }
    if (source.kind == Source::Kind::outside)
      guard(i, at::Tensor(captured.outside[source.index].lock()), false);
    if (source.kind == Source::Kind::told)
      guarded.inputs[i] = TensorGuard(at::Tensor(captured.told_tensors[source.index].lock()));
  }
  if (by_storage) guarded.arguments.guard_offsets(arguments);
  for (const auto& mutation : captured.mutations) written.push_back(mutation.input);
  guarded.memory = std::make_unique<MemoryGuard>(std::move(written), std::move(from_arguments), tensors);

  const auto& slots = guarded.modules->slots();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) {
      guarded.pinned.emplace_back(c10::weak_intrusive_ptr<c10::TensorImpl>(arguments[i].getIntrusivePtr()))
          .free = true;
      continue;
    }
    guarded.pinned.emplace_back(c10::weak_intrusive_ptr<c10::TensorImpl>(arguments[i].getIntrusivePtr()));
    for (size_t k = 0; k < slots.size(); ++k)
      if (slots[k].tensor().is_same(arguments[i])) guarded.arguments_in_slots.push_back({i, k});
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

bool GuardedProgram::holds(const detail::FlatArguments& call, const GlobalState& now,
                           bool any_numbers) const {
  return now == global_state && arguments.hold(call.tensors, call.fixed, any_numbers) &&
         !modules->changed() &&
         std::all_of(states.begin(), states.end(), [](const StateRead& read) { return read.holds(); }) &&
         std::all_of(arguments_in_slots.begin(), arguments_in_slots.end(),
                     [&](const ArgumentInSlot& both) {
                       return call.tensors[both.argument].is_same(modules->slots()[both.slot].tensor());
                     }) &&
         (!pins_are_guards.load(std::memory_order_acquire) || !has_new_tensors(call.tensors)) &&
         (!flags_are_guards.load(std::memory_order_acquire) || !has_other_flags());
}

std::string GuardedProgram::difference(const detail::FlatArguments& call, const GlobalState& now) const {
  if (!(now == global_state)) return global_state.difference(now);
  if (!arguments.hold(call.tensors, call.fixed, takes_any_numbers))
    return arguments.difference(call.tensors, call.fixed, takes_any_numbers);
  if (auto change = modules->changed()) return *change;
  for (const auto& read : states)
    if (!read.holds()) return std::string(read.what) + " changed since the program was compiled";
  for (const auto& both : arguments_in_slots)
    if (!call.tensors[both.argument].is_same(modules->slots()[both.slot].tensor()))
      return "argument " + std::to_string(both.argument) + " was " + modules->slots()[both.slot].path +
             " itself when the program was compiled, and is another tensor now";
  if (pins_are_guards && has_new_tensors(call.tensors))
    return "an argument was a tensor that the function also reaches in another way (it was captured), and is "
           "another one now";
  if (flags_are_guards && has_other_flags())
    return "a parameter or buffer has another requires_grad than when the program was compiled, and the "
           "function does something else then";
  if (!program) return "";
  const auto& sources = program->captured().sources;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!is_guarded(sources[i])) continue;
    const auto tensor = source_tensor(*this, sources[i], call.tensors);
    if (inputs[i].holds(tensor)) continue;
    if (sources[i].kind == Source::Kind::slot)
      return modules->slots()[sources[i].index].path + ": " + inputs[i].difference(tensor);
    return tensor.defined()
               ? "a tensor that the function uses and is not an argument: " + inputs[i].difference(tensor)
               : std::string("a tensor that the function used and was not an argument is freed");
  }
  if (!bind(call.tensors)) return "an input that the function writes to shares memory with another one";
  return "";
}

}  // namespace graft
