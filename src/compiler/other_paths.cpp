// Calls in which a function did something else than one of its programs: other values on the host, another
// answer of a comparison. There may be another program for that path, or there will be.
#include <algorithm>
#include <chrono>

#include "capture/replay.h"
#include "compiler/checked_call.h"
#include "compiler/compiled_function.h"
#include "runtime/assumption.h"
#include "runtime/data_error.h"
#include "support/log.h"
#include "support/stopwatch.h"

namespace graft::detail {
namespace {

/// Nothing where an operator refuses its data, as it would in eager code. On a GPU that would be lost by it,
/// and eager code would have changed its arguments by then: a call that throws has changed nothing.
std::optional<Program::ForwardPass> forward_unless_refused(const Program& program,
                                                           std::vector<at::Tensor> inputs) {
  const auto rethrow_where_eager_would_change_something = [&] {
    const auto& captured = program.captured();
    if (!captured.mutations.empty() || std::ranges::any_of(captured.graph.inputs(), [](const auto& input) {
          return input->type().device.kind != ir::Device::Kind::cpu;
        }))
      throw;
  };
  try {
    return program.forward(std::move(inputs));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const runtime::DataError& error) {
    rethrow_where_eager_would_change_something();
    log(LogTopic::breaks, error.what());
  } catch (const c10::Error& error) {
    rethrow_where_eager_would_change_something();
    log(LogTopic::breaks, error.what_without_backtrace());
  }
  return std::nullopt;
}

using Clock = std::chrono::steady_clock;
double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

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

/// The program alone. Where a comparison has another answer than the program takes for granted, nothing has
/// been changed yet, and the function itself runs.
FlatResult CompiledFunction::Impl::run(GuardedProgram& guarded, std::vector<at::Tensor> bound,
                                       const FlatArguments& call, const EagerFunction& original,
                                       const GlobalState& now) {
  const auto& program = *guarded.program;
  if (program.captured().assumptions.empty()) {
    auto pass = forward_unless_refused(program, std::move(bound));
    if (!pass) return call_with_refused_data(guarded, call, original);
    return {program.finish(std::move(*pass)), guarded.structure};
  }
  const verify::GeneratorStates before =
      program.draws() ? verify::GeneratorStates(program.captured().generators, call.tensors)
                      : verify::GeneratorStates();
  try {
    auto pass = forward_unless_refused(program, std::move(bound));
    if (pass) return {program.finish(std::move(*pass)), guarded.structure};
  } catch (const runtime::AssumptionFailed& failed) {
    before.restore();
    log(LogTopic::recompiles, failed.what());
    return take_path_of_other_answer(call, original, now);
  }
  return call_with_refused_data(guarded, call, original);
}

/// Eager code says in its own words what is wrong with the data, or its code catches the error and goes on.
FlatResult CompiledFunction::Impl::call_with_refused_data(GuardedProgram& guarded, const FlatArguments& call,
                                                          const EagerFunction& original) {
  auto result = original(call.tensors);
  guarded.not_replayable = true;  // where the code goes on depends on data
  const std::lock_guard<std::recursive_mutex> lock(compiling);
  report_break(
      "[compile] an operator refused its data, and the function's code went on: calls with such data run "
      "eagerly. Ask for what is wrong with the data before the call, or clamp it");
  return result;
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
    const auto& program = *chosen.program;
    auto pass = forward_unless_refused(program, std::move(inputs));
    if (!pass) return call_with_refused_data(chosen, call, original);
    result.tensors = program.finish(std::move(*pass));
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

}  // namespace graft::detail
