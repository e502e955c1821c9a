// The compiler from above: find a program whose guards hold, or capture and compile one; check it against
// eager until it is trusted; run it.
#include <algorithm>
#include <chrono>

#include "capture/call_watcher.h"
#include "compiler/checked_call.h"
#include "compiler/compiled_function.h"
#include "compiler/counters.h"
#include "compiler/explain.h"
#include "runtime/assumption.h"
#include "support/env.h"
#include "support/log.h"

namespace graft::detail {
namespace {

/// Calls inside a capture are part of what is captured.
bool capturing() { return CallWatcher::current() != nullptr; }

bool disabled() {
  static const bool off = env("GRAFT_DISABLE").value_or("0") == "1";
  return off;
}

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace

FlatResult CompiledFunction::Impl::call(const FlatArguments& call, const EagerFunction& original) {
  const auto now = GlobalState::now();
  std::vector<at::Tensor> bound;
  auto guarded = find(call, now, bound);
  if (logs(LogTopic::guards)) log_failed_guards(call, now, guarded.get());
  if (!guarded) {
    // A program has no forward-mode tangents (its guards say so): they would be dropped.
    if (std::any_of(call.tensors.begin(), call.tensors.end(), has_tangent)) {
      if (options.fullgraph)
        throw GraphBreak(
            "[compile] an argument has a forward-mode tangent, and compiled code has none. Call the function "
            "itself, or compile it without fullgraph");
      return original(call.tensors);
    }
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    drop_programs_after_reset();
    guarded = find(call, now, bound);  // another thread may have made it meanwhile
    if (!guarded) return watch_and_compile(call, original, now);
  }
  return call_program(*guarded, std::move(bound), call, original, now);
}

std::shared_ptr<GuardedProgram> CompiledFunction::Impl::new_guarded_program(const FlatArguments& call,
                                                                            const GlobalState& now) const {
  auto guarded = std::make_shared<GuardedProgram>();
  guarded->arguments = ArgumentGuards(call.tensors, call.fixed, call.numbers);
  guarded->global_state = now;
  guarded->modules = std::make_shared<ModuleTree>(roots);
  return guarded;
}

FlatResult CompiledFunction::Impl::watch_and_compile(const FlatArguments& call, const EagerFunction& original,
                                                     const GlobalState& now) {
  const auto known = programs_for_other_numbers(call, now);
  if (known.empty() && !may_compile(call, now)) return original(call.tensors);
  auto guarded = new_guarded_program(call, now);
  if (call.refused) {
    guarded->reason = std::string("[capture] ") + call.refused;
    if (options.fullgraph) throw GraphBreak(guarded->reason);
    report_break(guarded->reason);
    add_break(std::move(guarded));
    return original(call.tensors);
  }
  auto eager = verify::call_eagerly(call, original, *guarded->modules, options, nullptr, {}, assumes());
  if (auto taken = take_other_numbers(known, eager, call)) return std::move(*taken);
  if (!known.empty() && !may_compile(call, now)) return std::move(eager.result);
  return compile_watched(std::move(guarded), eager, call);
}

/// Makes a program from a call that was watched. Where none can be made, the function's own result stands.
/// `is_only_path`: calls for which the guards hold run eagerly then; else other programs serve some of them.
FlatResult CompiledFunction::Impl::compile_watched(std::shared_ptr<GuardedProgram> guarded,
                                                   verify::EagerCall& eager, const FlatArguments& call,
                                                   bool is_only_path) {
  guarded->states = eager.states;
  if (!eager.observed.capture) {
    guarded->reason = eager.observed.broken;
    report_break(guarded->reason, eager.observed.backtrace, options.split && eager.observed.broken_by_read);
    if (eager.observed.broken_by_read)
      run_in_parts(std::move(guarded));
    else
      add_break(std::move(guarded));
    return std::move(eager.result);
  }
  const auto& captured = *eager.observed.capture;
  guarded->structure = eager.result.structure;
  guarded->fixed = eager.result.fixed;
  guarded->takes_any_numbers = !captured.told.empty();
  guard_inputs(captured, call.tensors, *guarded);
  if (logs(LogTopic::guards))
    for (const auto& line :
         guard_lines(guarded->arguments, *guarded->modules, captured.sources, guarded->states))
      log(LogTopic::guards, "made: " + line);
  if (options.replay != Replay::off && !captured.trace->refused.empty())
    log(LogTopic::breaks, "[replay] not possible: " + captured.trace->refused);
  try {
    const auto started = std::chrono::steady_clock::now();
    guarded->program = std::make_shared<Program>(captured, options);
    count([&](Counters& c) {
      ++c.graphs;
      for (const auto* executable : guarded->program->executables()) {
        c.kernels += executable->kernels();
        c.extern_calls += executable->extern_calls();
        c.cache_hits += executable->cache_hits();
      }
      c.compile_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    });
  } catch (...) {
    // An error of the compiler's own, and the caller's to see.
    eager.undo();
    throw;
  }
  auto made = checked_call(*guarded, eager, call, options);
  guarded->checks_left = options.verify ? checks_before_trust - 1 : 0;
  if (auto kept = verify::tensor_kept_by_function(eager, made, guarded->program->trains()); !kept.empty()) {
    if (options.fullgraph) {
      eager.undo();
      throw GraphBreak(kept);
    }
    guarded->program.reset();
    guarded->reason = std::move(kept);
    report_break(guarded->reason, "", options.split && is_only_path);
    if (is_only_path) run_in_parts(std::move(guarded));
    return made;
  }
  add(std::move(guarded));
  return made;
}

FlatResult CompiledFunction::Impl::call_program(GuardedProgram& guarded, std::vector<at::Tensor> bound,
                                                const FlatArguments& call, const EagerFunction& original,
                                                const GlobalState& now) {
  if (guarded.parts) return guarded.parts->call(call, original);
  if (guarded.runs_eagerly()) return original(call.tensors);
  const auto number = guarded.calls.fetch_add(1, std::memory_order_relaxed);
  const bool sampled = options.verify_every > 0 && number % options.verify_every == 0;
  const auto wanted = [&] {
    return guarded.checks_left.load(std::memory_order_acquire) > 0 ||
           guarded.watches_left.load(std::memory_order_acquire) > 0 ||
           guarded.has_new_tensors(call.tensors) ||
           (options.verify && guarded.program->has_unchecked_backward());
  };
  if (sampled || wanted()) {
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    if (guarded.runs_eagerly()) return original(call.tensors);
    // An argument that is now also a parameter is one input of a capture, and two of the program.
    if (guarded.has_duplicates(bound)) return original(call.tensors);
    if (sampled || wanted()) return check(guarded, call, original, now);
  }
  constexpr int64_t watched_before = 1;  // the capture
  const bool is_told = !guarded.program->captured().told.empty() ||
                       (guarded.takes_any_numbers.load(std::memory_order_acquire) &&
                        guarded.arguments.has_other_numbers(call.fixed));
  const bool is_due = guarded.replays.is_due(number + watched_before + 1, options.replay);
  if (!guarded.can_be_replayed()) {
    // Who asks for a look at every call gets the function itself where nothing less will do.
    if (options.replay == Replay::every || is_told || guarded.replays.has_changed())
      return original(call.tensors);
    // It is seen as often as a replay would see it, but for what a look costs: then all is compared.
    if (is_due && options.verify && !guarded.has_duplicates(bound)) {
      const std::lock_guard<std::recursive_mutex> lock(compiling);
      return guarded.runs_eagerly() ? original(call.tensors) : check(guarded, call, original, now);
    }
  } else if (is_told || is_due) {
    return replayed_call(guarded, std::move(bound), call, original, now);
  }
  return run(guarded, std::move(bound), call, original, now);
}

/// The function itself runs, and the program beside it on copies.
FlatResult CompiledFunction::Impl::check(GuardedProgram& guarded, const FlatArguments& call,
                                         const EagerFunction& original, const GlobalState& now) {
  const auto& told = guarded.changing.empty() ? guarded.program->captured().told : guarded.changing;
  auto eager =
      verify::call_eagerly(call, original, *guarded.modules, options, guarded.program.get(), told, assumes());
  auto& observed = eager.observed;
  const bool may_differ = options.replay != Replay::off;
  if (!observed.capture && may_differ && guarded.can_be_replayed())
    return take_other_path(guarded, eager, call, now);
  if (!observed.capture) {
    stop_using(guarded, observed.broken);
    return std::move(eager.result);
  }
  if (observed.capture->assumptions != guarded.program->captured().assumptions) {
    ++wrong_assumptions;
    return use_path_of(eager, call, now);
  }
  // With a tensor in an argument's place that the function reached in two ways, it has one input more, or
  // other ones, or gives or changes another one of them; or the same inputs in other places.
  const auto has_other_path = [&] {
    return !verify::is_same_path(guarded.program->captured(), *observed.capture);
  };
  const auto reached_otherwise = [&] {
    return has_other_inputs(*observed.capture, guarded.program->captured()) ||
           (guarded.has_moved_tensors(call.tensors) && has_other_path());
  };
  const auto compile_again = [&](std::atomic<bool>& becomes_a_guard) {
    becomes_a_guard = true;
    count([](Counters& c) { ++c.recompiles; });
    return compile_watched(new_guarded_program(call, now), eager, call);
  };
  if (guarded.has_new_tensors(call.tensors) && reached_otherwise())
    return compile_again(guarded.pins_are_guards);
  if (guarded.has_other_flags() && has_other_path()) return compile_again(guarded.flags_are_guards);
  if (may_differ && does_something_else(*observed.capture, guarded.program->captured()))
    return take_other_path(guarded, eager, call, now);
  guarded.note_same_path();
  if (uses_other_outside_tensors(*observed.capture, guarded.program->captured())) {
    const char* why =
        "[capture] the function works on other tensors than when it was captured, besides its arguments: a "
        "variable that it reads holds another tensor, or it makes tensors past the dispatcher (data()). Pass "
        "such tensors as arguments, or name the module that holds them: compile(f, options, {module})";
    if (options.fullgraph) {
      eager.undo();
      throw GraphBreak(why);
    }
    stop_using(guarded, why);
    return std::move(eager.result);
  }
  auto made = checked_call(guarded, eager, call, options);
  if (auto kept = verify::tensor_kept_by_function(eager, made, guarded.program->trains());
      !kept.empty() && !guarded.distrusted) {
    stop_using(guarded, kept);
    return made;
  }
  if (guarded.checks_left.load(std::memory_order_relaxed) > 0)
    guarded.checks_left.fetch_sub(1, std::memory_order_release);
  return made;
}

CompiledFunction::CompiledFunction(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                                   CompileOptions options)
    : impl_(std::make_shared<Impl>()) {
  logs(LogTopic::graph);  // a wrong GRAFT_LOGS is an error now, not in the middle of the work
  if (options.dynamic == Dynamic::on)
    log_warning(
        "[compile] dynamic=on has no effect yet: each shape is compiled on its own, as with auto. Pad "
        "inputs to a few sizes where there are many shapes");
  impl_->roots = std::move(modules);
  impl_->options = std::move(options);
  if (impl_->options.state) impl_->options.replay = Replay::off;
  if (const auto every = env_number("GRAFT_VERIFY_EVERY")) impl_->options.verify_every = *every;
}
CompiledFunction::~CompiledFunction() = default;

FlatResult CompiledFunction::call(const FlatArguments& arguments, const EagerFunction& original) {
  if (impl_->options.backend == Backend::eager || disabled() || capturing())
    return original(arguments.tensors);
  return impl_->options.state ? impl_->call(with_state(arguments, impl_->options.state), original)
                              : impl_->call(arguments, original);
}

std::string CompiledFunction::explain(const FlatArguments& arguments, const EagerFunction& original,
                                      const std::string& level) {
  const std::lock_guard<std::recursive_mutex> lock(impl_->compiling);
  return graft::explain(impl_->options.state ? with_state(arguments, impl_->options.state) : arguments,
                        original, impl_->roots, impl_->options, level, impl_->known_break(arguments));
}

}  // namespace graft::detail
