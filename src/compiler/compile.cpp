// The compiler from above: find a program whose guards hold, or capture and compile one; check it against
// eager until it is trusted; run it.
#include <algorithm>
#include <chrono>
#include <shared_mutex>

#include "capture/recorder.h"
#include "capture/replay.h"
#include "compiler/checked_call.h"
#include "compiler/counters.h"
#include "compiler/explain.h"
#include "compiler/guarded_program.h"
#include "runtime/assumption.h"
#include "support/env.h"
#include "support/log.h"
#include "support/stopwatch.h"
#include "verify/watched_call.h"

namespace graft::detail {
namespace {

using Clock = std::chrono::steady_clock;
double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// Calls inside a capture are part of what is captured.
bool capturing() { return CallWatcher::current() != nullptr; }

bool disabled() {
  static const bool off = env("GRAFT_DISABLE").value_or("0") == "1";
  return off;
}

/// A comparison on the host whose answer has been another that often is a read like others.
constexpr int64_t most_wrong_assumptions = 8;

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace

struct CompiledFunction::Impl {
  std::vector<std::shared_ptr<torch::nn::Module>> roots;
  CompileOptions options;

  std::shared_mutex programs_guard;
  std::vector<std::shared_ptr<GuardedProgram>> programs;  // the newest comes first
  uint64_t generation = reset_generation();
  std::recursive_mutex compiling;
  bool limit_warned = false, break_warned = false;
  /// Calls in which a program had taken for granted what was not so. After some of them nothing is any more.
  int64_t wrong_assumptions = 0;
  bool assumes() const { return wrong_assumptions < most_wrong_assumptions; }

  std::shared_ptr<GuardedProgram> find(const FlatArguments& call, const GlobalState& now,
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

  /// Says for each program that a call does not fit, why: up to the one that it fits.
  void log_failed_guards(const FlatArguments& call, const GlobalState& now, const GuardedProgram* fitting) {
    const std::shared_lock<std::shared_mutex> lock(programs_guard);
    for (const auto& guarded : programs) {
      if (guarded.get() == fitting) return;
      log(LogTopic::guards, "failed: " + guarded->difference(call, now));
    }
  }

  void add(std::shared_ptr<GuardedProgram> guarded) {
    const std::unique_lock<std::shared_mutex> lock(programs_guard);
    programs.insert(programs.begin(), std::move(guarded));
  }

  struct Variant {
    std::shared_ptr<GuardedProgram> guarded;
    std::vector<at::Tensor> bound;
  };
  /// The other programs whose guards hold for a call, made from other paths through the function.
  std::vector<Variant> variants_of(const GuardedProgram& guarded, const FlatArguments& call,
                                   const GlobalState& now) {
    std::vector<Variant> found;
    const std::shared_lock<std::shared_mutex> lock(programs_guard);
    for (const auto& other : programs) {
      if (other.get() == &guarded || other->runs_eagerly() || !other->holds(call, now)) continue;
      if (auto bound = other->bind(call.tensors)) found.push_back({other, std::move(*bound)});
    }
    return found;
  }

  /// The function took the path of this program: it will be tried first.
  void move_to_front(const GuardedProgram& guarded) {
    const std::unique_lock<std::shared_mutex> lock(programs_guard);
    const auto at = std::ranges::find_if(programs, [&](const auto& each) { return each.get() == &guarded; });
    if (at != programs.end()) std::rotate(programs.begin(), at, at + 1);
  }

  /// Each is logged, and the first is a warning: that large parts of a program are not compiled should be
  /// seen.
  void report_break(const std::string& why, const std::string& code = "", bool in_parts = false) {
    if (logs(LogTopic::breaks)) return log(LogTopic::breaks, code.empty() ? why : why + "\n" + code);
    if (std::exchange(break_warned, true)) return;
    log_warning(LogTopic::breaks,
                std::string("[compile] a function is ") +
                    (in_parts ? "compiled in parts, not as a whole: " : "not compiled, it runs eagerly: ") +
                    why + ". (explain() lists all reasons; GRAFT_LOGS=-breaks turns such warnings off.)");
  }

  /// The program runs no more: the function does instead.
  void stop_using(GuardedProgram& guarded, const std::string& why) {
    report_break(why);
    guarded.reason = why;
    guarded.distrusted = true;
    count([](Counters& c) { ++c.graph_breaks; });
  }

  /// Why such a call runs eagerly, if it is known to.
  std::string known_break(const FlatArguments& call) {
    const auto now = GlobalState::now();
    const std::shared_lock<std::shared_mutex> lock(programs_guard);
    for (const auto& guarded : programs)
      if (guarded->holds(call, now)) return guarded->runs_eagerly() ? guarded->reason : "";
    return "";
  }

  /// One without a program: such calls run eagerly from now on.
  void add_break(std::shared_ptr<GuardedProgram> guarded) {
    count([](Counters& c) { ++c.graph_breaks; });
    add(std::move(guarded));
  }

  /// Such calls run part by part from now on.
  void run_in_parts(std::shared_ptr<GuardedProgram> guarded) {
    if (options.split) guarded->parts = std::make_shared<SplitFunction>(roots, options);
    guarded->takes_any_numbers = options.split;  // the code runs in every call
    add_break(std::move(guarded));
  }

  void drop_programs_after_reset() {
    const std::unique_lock<std::shared_mutex> lock(programs_guard);
    if (generation == reset_generation()) return;
    programs.clear();
    generation = reset_generation();
    limit_warned = false;
    wrong_assumptions = 0;
  }

  /// False when there are too many programs already.
  bool may_compile(const FlatArguments& call, const GlobalState& now) {
    const std::shared_lock<std::shared_mutex> lock(programs_guard);
    if (programs.empty()) return true;
    auto why = programs.front()->difference(call, now);
    if (why.empty()) why = "the function's C++ code does something else than in earlier calls";
    if (static_cast<int64_t>(programs.size()) < options.recompile_limit) {
      count([](Counters& c) { ++c.recompiles; });
      log(LogTopic::recompiles, "compiling again: " + why);
      return true;
    }
    const auto message =
        "[compile] the function has " + std::to_string(programs.size()) +
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

  FlatResult call(const FlatArguments& call, const EagerFunction& original);
  FlatResult watch_and_compile(const FlatArguments& call, const EagerFunction& original,
                               const GlobalState& now);
  std::vector<std::shared_ptr<GuardedProgram>> programs_for_other_numbers(const FlatArguments& call,
                                                                          const GlobalState& now);
  std::optional<FlatResult> take_other_numbers(const std::vector<std::shared_ptr<GuardedProgram>>& known,
                                               verify::EagerCall& eager, const FlatArguments& call);
  FlatResult take_told(GuardedProgram& guarded, ToldInputs told, verify::EagerCall& eager,
                       const FlatArguments& call);
  FlatResult compile_watched(std::shared_ptr<GuardedProgram> guarded, verify::EagerCall& eager,
                             const FlatArguments& call, bool is_only_path = true);
  FlatResult call_program(GuardedProgram& guarded, std::vector<at::Tensor> bound, const FlatArguments& call,
                          const EagerFunction& original, const GlobalState& now);
  FlatResult check(GuardedProgram& guarded, const FlatArguments& call, const EagerFunction& original,
                   const GlobalState& now);
  FlatResult replayed_call(GuardedProgram& guarded, std::vector<at::Tensor> bound, const FlatArguments& call,
                           const EagerFunction& original, const GlobalState& now);
  FlatResult take_other_path(GuardedProgram& guarded, verify::EagerCall& eager, const FlatArguments& call,
                             const GlobalState& now);
  FlatResult check_path(GuardedProgram& guarded, verify::EagerCall& eager, const FlatArguments& call);
  FlatResult run(GuardedProgram& guarded, std::vector<at::Tensor> bound, const FlatArguments& call,
                 const EagerFunction& original, const GlobalState& now);
  FlatResult take_path_of_other_answer(const FlatArguments& call, const EagerFunction& original,
                                       const GlobalState& now);
  FlatResult use_path_of(verify::EagerCall& eager, const FlatArguments& call, const GlobalState& now);
  std::shared_ptr<GuardedProgram> new_guarded_program(const FlatArguments& call,
                                                      const GlobalState& now) const;
};

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

/// Programs that serve such calls, but for the numbers among their arguments. None where these decide what
/// the function does: then they are guards, and with another value comes another program.
std::vector<std::shared_ptr<GuardedProgram>> CompiledFunction::Impl::programs_for_other_numbers(
    const FlatArguments& call, const GlobalState& now) {
  std::vector<std::shared_ptr<GuardedProgram>> found;
  if (call.numbers.empty() || options.replay == Replay::off) return found;
  bool any_serves_more = false;
  const std::shared_lock<std::shared_mutex> lock(programs_guard);
  for (const auto& each : programs)
    if (each->can_be_replayed() && !each->runs_eagerly() && each->holds(call, now, /*any_numbers=*/true) &&
        each->bind(call.tensors)) {
      any_serves_more |= each->takes_any_numbers;
      found.push_back(each);
    }
  constexpr size_t enough_to_tell = 4;
  if (!any_serves_more && found.size() >= enough_to_tell) found.clear();
  return found;
}

/// A call that was watched differs from those of these programs by numbers among its arguments. If for one of
/// them all that comes of it is other numbers in the function, these are as good as numbers that the code
/// keeps elsewhere: the program serves any, its code is replayed, and the numbers become inputs.
std::optional<FlatResult> CompiledFunction::Impl::take_other_numbers(
    const std::vector<std::shared_ptr<GuardedProgram>>& known, verify::EagerCall& eager,
    const FlatArguments& call) {
  if (!eager.observed.capture) return std::nullopt;
  for (const auto& each : known) {
    auto told = told_to_serve_both(*eager.observed.capture, each->program->captured());
    if (!told) continue;
    each->takes_any_numbers = true;
    return take_told(*each, std::move(*told), eager, call);
  }
  return std::nullopt;
}

/// A call that was watched took the path of this program, but for what replays are to tell.
FlatResult CompiledFunction::Impl::take_told(GuardedProgram& guarded, ToldInputs told,
                                             verify::EagerCall& eager, const FlatArguments& call) {
  if (told == guarded.program->captured().told) return check_path(guarded, eager, call);
  // What was recorded has it in it: the next call is recorded with inputs in its place.
  guarded.changing = std::move(told);
  guarded.watches_left.store(1, std::memory_order_release);
  return std::move(eager.result);
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

/// The program alone. Where a comparison has another answer than the program takes for granted, nothing has
/// been changed yet, and the function itself runs.
FlatResult CompiledFunction::Impl::run(GuardedProgram& guarded, std::vector<at::Tensor> bound,
                                       const FlatArguments& call, const EagerFunction& original,
                                       const GlobalState& now) {
  const auto& program = *guarded.program;
  if (program.captured().assumptions.empty()) return guarded.run(std::move(bound));
  const verify::GeneratorStates before =
      program.draws() ? verify::GeneratorStates(program.captured().generators, call.tensors)
                      : verify::GeneratorStates();
  try {
    return {program.finish(program.forward(std::move(bound))), guarded.structure};
  } catch (const runtime::AssumptionFailed& failed) {
    before.restore();
    log(LogTopic::recompiles, failed.what());
  }
  return take_path_of_other_answer(call, original, now);
}

FlatResult CompiledFunction::Impl::take_path_of_other_answer(const FlatArguments& call,
                                                             const EagerFunction& original,
                                                             const GlobalState& now) {
  const std::lock_guard<std::recursive_mutex> lock(compiling);
  ++wrong_assumptions;
  if (!assumes()) {
    const std::unique_lock<std::shared_mutex> writing(programs_guard);
    std::erase_if(programs, [](const auto& each) {
      return each->program && !each->program->captured().assumptions.empty();
    });
  }
  const ModuleTree modules(roots);
  auto eager = verify::call_eagerly(call, original, modules, options, nullptr, {}, assumes());
  return use_path_of(eager, call, now);
}

/// A call that was watched had other answers than a program takes for granted: there may be a program for
/// them, or there will be.
FlatResult CompiledFunction::Impl::use_path_of(verify::EagerCall& eager, const FlatArguments& call,
                                               const GlobalState& now) {
  auto fresh = new_guarded_program(call, now);
  if (eager.observed.capture) {
    for (const auto& variant : variants_of(*fresh, call, now))
      if (verify::is_same_path(variant.guarded->program->captured(), *eager.observed.capture))
        return check_path(*variant.guarded, eager, call);
    if (!may_compile(call, now)) return std::move(eager.result);
  } else if (assumes()) {
    // Only this path has a break.
    report_break(eager.observed.broken, eager.observed.backtrace);
    return std::move(eager.result);
  }
  return compile_watched(std::move(fresh), eager, call, /*is_only_path=*/!assumes());
}

/// The function's C++ code runs first, over placeholders. It may take the path of another program.
FlatResult CompiledFunction::Impl::replayed_call(GuardedProgram& guarded, std::vector<at::Tensor> bound,
                                                 const FlatArguments& call, const EagerFunction& original,
                                                 const GlobalState& now) {
  const Stopwatch watch("replay");
  auto variants = variants_of(guarded, call, now);
  std::erase_if(variants, [](const Variant& variant) {
    return !variant.guarded->can_be_replayed() || variant.guarded->checks_left.load() > 0;
  });
  const auto follow = [](const GuardedProgram& each, const std::vector<at::Tensor>& inputs) {
    TraceToFollow trace{each.program->captured().trace.get(), &inputs};
    if (!each.program->captured().told_tensors.empty())
      trace.may_be = [&](size_t input, const at::Tensor& tensor) { return each.may_be_told(input, tensor); };
    return trace;
  };
  std::vector<TraceToFollow> traces{follow(guarded, bound)};
  for (const auto& variant : variants) traces.push_back(follow(*variant.guarded, variant.bound));
  FlatResult result;
  const auto started = Clock::now();
  auto outcome = ReplayedRun(std::move(traces))
                     .run(
                         [&](const std::vector<at::Tensor>& tensors) {
                           result = original(tensors);
                           return std::move(result.tensors);
                         },
                         call.tensors);
  count([](Counters& c) { ++c.replays; });
  if (const auto which = outcome.followed) {
    auto& chosen = *which == 0 ? guarded : *variants[*which - 1].guarded;
    auto& inputs = *which == 0 ? bound : variants[*which - 1].bound;
    if (*which > 0) {
      count([](Counters& c) { ++c.replay_differences; });
      chosen.replays.note_change();
      move_to_front(chosen);
    }
    if (result.fixed != chosen.fixed) chosen.replays.note_change();
    for (const auto& [input, value] : outcome.told) inputs[input] = value;
    const auto replayed = Clock::now();
    result.tensors = chosen.run(std::move(inputs)).tensors;
    chosen.replays.note_times(seconds(replayed - started), seconds(Clock::now() - replayed));
    return result;
  }
  if (!outcome.refused.empty()) {
    log(LogTopic::breaks, "[replay] not possible: " + outcome.refused);
    // It does what no program does: from now on it runs in parts.
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    guarded.not_replayable = true;
    auto parted = new_guarded_program(call, now);
    parted->reason = "[capture] " + outcome.refused;
    if (options.fullgraph) throw GraphBreak(parted->reason);
    run_in_parts(std::move(parted));
    return original(call.tensors);
  }
  result.tensors = std::move(outcome.outputs);
  if (outcome.kept) return result;
  count([](Counters& c) { ++c.replay_differences; });
  guarded.replays.note_change();
  guarded.watches_left.store(guarded.replays.watches_for_change(), std::memory_order_release);
  return result;
}

/// The function has done something else than the program was made from. Its result stands; there may be
/// another program for that path, or there will be.
FlatResult CompiledFunction::Impl::take_other_path(GuardedProgram& guarded, verify::EagerCall& eager,
                                                   const FlatArguments& call, const GlobalState& now) {
  if (!guarded.can_be_replayed()) {
    stop_using(guarded,
               "[compile] the function's C++ code does something else than when it was compiled, and it "
               "cannot be replayed to see when: it runs eagerly. Pass what changes as an argument");
    return std::move(eager.result);
  }
  guarded.replays.note_change();
  if (!eager.observed.capture) {
    log(LogTopic::breaks, eager.observed.broken);
    return std::move(eager.result);
  }
  for (const auto& variant : variants_of(guarded, call, now)) {
    if (does_something_else(*eager.observed.capture, variant.guarded->program->captured())) continue;
    variant.guarded->replays.note_change();
    move_to_front(*variant.guarded);
    return check_path(*variant.guarded, eager, call);
  }
  if (auto told = told_to_serve_both(*eager.observed.capture, guarded.program->captured()))
    return take_told(guarded, std::move(*told), eager, call);
  if (auto taken = take_other_numbers(programs_for_other_numbers(call, now), eager, call))
    return std::move(*taken);
  guarded.watches_left.store(0, std::memory_order_release);
  if (!may_compile(call, now)) return std::move(eager.result);
  auto made = new_guarded_program(call, now);
  made->replays.note_change();
  const auto other = made;
  auto result = compile_watched(std::move(made), eager, call, /*is_only_path=*/false);
  if (!other->program) guarded.not_replayable = true;  // no program is made for it: why would the next one?
  return result;
}

/// A call that was watched has taken the path of this program.
FlatResult CompiledFunction::Impl::check_path(GuardedProgram& guarded, verify::EagerCall& eager,
                                              const FlatArguments& call) {
  move_to_front(guarded);
  auto made = checked_call(guarded, eager, call, options);
  if (guarded.checks_left.load(std::memory_order_relaxed) > 0)
    guarded.checks_left.fetch_sub(1, std::memory_order_release);
  return made;
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
