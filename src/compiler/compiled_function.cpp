// The list of a compiled function's programs, and what is said of breaks.
#include "compiler/compiled_function.h"

#include <algorithm>

#include "support/log.h"

namespace graft::detail {

std::shared_ptr<GuardedProgram> CompiledFunction::Impl::find(const FlatArguments& call,
                                                             const GlobalState& now,
                                                             std::vector<at::Tensor>& bound) {
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  if (generation != reset_generation()) return nullptr;
  for (const auto& guarded : programs) {
    if (!guarded->holds(call, now)) continue;
    if (guarded->runs_eagerly()) return guarded;
    if (auto inputs = guarded->bind(call.tensors)) {
      bound = std::move(*inputs);
      return guarded;
    }
  }
  return nullptr;
}

void CompiledFunction::Impl::log_failed_guards(const FlatArguments& call, const GlobalState& now,
                                               const GuardedProgram* fitting) {
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  for (const auto& guarded : programs) {
    if (guarded.get() == fitting) return;
    log(LogTopic::guards, "failed: " + guarded->difference(call, now));
  }
}

void CompiledFunction::Impl::add(std::shared_ptr<GuardedProgram> guarded) {
  const std::unique_lock<std::shared_mutex> lock(programs_guard);
  programs.insert(programs.begin(), std::move(guarded));
}

std::vector<CompiledFunction::Impl::Variant> CompiledFunction::Impl::variants_of(
    const GuardedProgram& guarded, const FlatArguments& call, const GlobalState& now) {
  std::vector<Variant> found;
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  for (const auto& other : programs) {
    if (other.get() == &guarded || other->runs_eagerly() || !other->holds(call, now)) continue;
    if (auto bound = other->bind(call.tensors)) found.push_back({other, std::move(*bound)});
  }
  return found;
}

void CompiledFunction::Impl::move_to_front(const GuardedProgram& guarded) {
  const std::unique_lock<std::shared_mutex> lock(programs_guard);
  const auto at = std::ranges::find_if(programs, [&](const auto& each) { return each.get() == &guarded; });
  if (at != programs.end()) std::rotate(programs.begin(), at, at + 1);
}

void CompiledFunction::Impl::report_break(const std::string& why, const std::string& code, bool in_parts) {
  if (logs(LogTopic::breaks)) return log(LogTopic::breaks, code.empty() ? why : why + "\n" + code);
  if (std::exchange(break_warned, true)) return;
  log_warning(LogTopic::breaks,
              std::string("[compile] a function is ") +
                  (in_parts ? "compiled in parts, not as a whole: " : "not compiled, it runs eagerly: ") +
                  why + ". (explain() lists all reasons; GRAFT_LOGS=-breaks turns such warnings off.)");
}

void CompiledFunction::Impl::stop_using(GuardedProgram& guarded, const std::string& why) {
  report_break(why);
  guarded.reason = why;
  guarded.distrusted = true;
  count([](Counters& c) { ++c.graph_breaks; });
}

std::string CompiledFunction::Impl::known_break(const FlatArguments& call) {
  const auto now = GlobalState::now();
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  for (const auto& guarded : programs)
    if (guarded->holds(call, now)) return guarded->runs_eagerly() ? guarded->reason : "";
  return "";
}

void CompiledFunction::Impl::add_break(std::shared_ptr<GuardedProgram> guarded) {
  count([](Counters& c) { ++c.graph_breaks; });
  add(std::move(guarded));
}

void CompiledFunction::Impl::run_in_parts(std::shared_ptr<GuardedProgram> guarded) {
  if (options.split) guarded->parts = std::make_shared<SplitFunction>(roots, options);
  guarded->takes_any_numbers = options.split;  // the code runs in every call
  add_break(std::move(guarded));
}

void CompiledFunction::Impl::drop_programs_after_reset() {
  const std::unique_lock<std::shared_mutex> lock(programs_guard);
  if (generation == reset_generation()) return;
  programs.clear();
  generation = reset_generation();
  limit_warned = false;
  wrong_assumptions = 0;
}

bool CompiledFunction::Impl::may_compile(const FlatArguments& call, const GlobalState& now) {
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  if (programs.empty()) return true;
  auto why = programs.front()->difference(call, now);
  if (why.empty()) why = "the function's C++ code does something else than in earlier calls";
  if (static_cast<int64_t>(programs.size()) < options.recompile_limit) {
    count([](Counters& c) { ++c.recompiles; });
    log(LogTopic::recompiles, "compiling again: " + why);
    return true;
  }
  const auto message = "[compile] the function has " + std::to_string(programs.size()) +
                       " programs, as many as recompile_limit allows, and none fits this call. The guard of "
                       "the newest one that failed: " +
                       why + ". ";
  const char* advice =
      "Pad inputs to a few sizes, or raise recompile_limit (dynamic=on does not help yet: each shape is "
      "compiled on its own)";
  if (options.fullgraph) throw Error(message + advice);
  if (!limit_warned) log_warning(message + "Such calls run eagerly from now on. " + advice);
  limit_warned = true;
  return false;
}

}  // namespace graft::detail
