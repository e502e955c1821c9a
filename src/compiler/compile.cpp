// The compiler from above: find a program whose guards hold, or capture and compile one; check it against
// eager until it is trusted; run it.
#include <algorithm>
#include <chrono>
#include <shared_mutex>

#include "capture/recorder.h"
#include "compiler/checked_call.h"
#include "compiler/counters.h"
#include "compiler/explain.h"
#include "compiler/guarded_program.h"
#include "support/env.h"
#include "support/log.h"
#include "verify/watched_call.h"

namespace graft::detail {
namespace {

/// Calls inside a capture are part of what is captured.
bool capturing() { return CallWatcher::current() != nullptr; }

bool disabled() {
  static const bool off = env("GRAFT_DISABLE").value_or("0") == "1";
  return off;
}

/// The program runs no more: the function does instead.
void stop_using(GuardedProgram& guarded, const std::string& why) {
  log(LogTopic::breaks, why);
  guarded.distrusted = true;
  count([](Counters& c) { ++c.graph_breaks; });
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

/// Whether the function works on other tensors than at the capture, by where they come from.
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

/// Whether a tensor that is neither an argument nor a module's is another one than at the capture.
bool uses_other_outside_tensors(const CapturedFunction& now, const CapturedFunction& then) {
  return !std::ranges::equal(now.outside, then.outside, [](const auto& a, const auto& b) {
    return a._unsafe_get_target() == b._unsafe_get_target();
  });
}

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
  bool limit_warned = false;

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

  /// One without a program: such calls run eagerly from now on.
  void add_break(std::shared_ptr<GuardedProgram> guarded) {
    count([](Counters& c) { ++c.graph_breaks; });
    add(std::move(guarded));
  }

  /// Such calls run part by part from now on.
  void run_in_parts(std::shared_ptr<GuardedProgram> guarded) {
    if (options.split) guarded->parts = std::make_shared<SplitFunction>(roots, options);
    add_break(std::move(guarded));
  }

  void drop_programs_after_reset() {
    const std::unique_lock<std::shared_mutex> lock(programs_guard);
    if (generation == reset_generation()) return;
    programs.clear();
    generation = reset_generation();
    limit_warned = false;
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
  guarded->arguments = ArgumentGuards(call.tensors, call.fixed);
  guarded->global_state = now;
  guarded->modules = std::make_shared<ModuleTree>(roots);
  return guarded;
}

FlatResult CompiledFunction::Impl::watch_and_compile(const FlatArguments& call, const EagerFunction& original,
                                                     const GlobalState& now) {
  if (!may_compile(call, now)) return original(call.tensors);
  auto guarded = new_guarded_program(call, now);
  if (call.refused) {
    guarded->reason = std::string("[capture] ") + call.refused;
    if (options.fullgraph) throw GraphBreak(guarded->reason);
    log(LogTopic::breaks, guarded->reason);
    add_break(std::move(guarded));
    return original(call.tensors);
  }
  auto eager = verify::call_eagerly(call, original, *guarded->modules, options);
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
    log(LogTopic::breaks,
        guarded->reason + (eager.observed.backtrace.empty() ? "" : "\n" + eager.observed.backtrace));
    if (eager.observed.broken_by_read)
      run_in_parts(std::move(guarded));
    else
      add_break(std::move(guarded));
    return std::move(eager.result);
  }
  const auto& captured = *eager.observed.capture;
  guarded->structure = eager.result.structure;
  guarded->fixed = eager.result.fixed;
  guard_inputs(captured, call.tensors, *guarded);
  if (logs(LogTopic::guards))
    for (const auto& line :
         guard_lines(guarded->arguments, *guarded->modules, captured.sources, guarded->states))
      log(LogTopic::guards, "made: " + line);
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
    log(LogTopic::breaks, guarded->reason);
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
    return guarded.checks_left.load(std::memory_order_acquire) > 0 || guarded.has_new_tensors(call.tensors) ||
           (options.verify && guarded.program->has_unchecked_backward());
  };
  if (sampled || wanted()) {
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    if (guarded.runs_eagerly()) return original(call.tensors);
    // An argument that is now also a parameter is one input of a capture, and two of the program.
    if (guarded.has_duplicates(bound)) return original(call.tensors);
    if (sampled || wanted()) return check(guarded, call, original, now);
  }
  // Code that runs over placeholders makes no history, and could ask for it.
  if (options.replay == Replay::every && at::GradMode::is_enabled()) return original(call.tensors);
  constexpr int64_t watched_before = 1;  // the capture
  if (!at::GradMode::is_enabled() && guarded.replays.is_due(number + watched_before + 1, options.replay))
    return replayed_call(guarded, std::move(bound), call, original, now);
  return {guarded.program->finish(guarded.program->forward(std::move(bound))), guarded.structure};
}

/// The function's C++ code runs first, over placeholders. It may take the path of another program.
FlatResult CompiledFunction::Impl::replayed_call(GuardedProgram& guarded, std::vector<at::Tensor> bound,
                                                 const FlatArguments& call, const EagerFunction& original,
                                                 const GlobalState& now) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  if (!guarded.can_be_replayed()) {
    // Who asks for a look at every call gets the function itself where nothing less will do.
    if (options.replay == Replay::every) return original(call.tensors);
    return {guarded.program->finish(guarded.program->forward(std::move(bound))), guarded.structure};
  }
  const auto started = Clock::now();
  auto variants = variants_of(guarded, call, now);
  std::erase_if(variants, [](const Variant& variant) {
    return !variant.guarded->can_be_replayed() || variant.guarded->checks_left.load() > 0;
  });
  std::vector<TraceToFollow> traces{{guarded.program->captured().trace.get(), &bound}};
  for (const auto& variant : variants)
    traces.push_back({variant.guarded->program->captured().trace.get(), &variant.bound});
  auto eager = [&] {
    // Parameters that are trained at times are switched meanwhile.
    std::unique_lock<std::recursive_mutex> lock(compiling, std::defer_lock);
    if (std::ranges::any_of(guarded.modules->slots(), &ModuleTree::Slot::at_times)) lock.lock();
    return verify::call_eagerly(call, original, *guarded.modules, options, guarded.program.get(), traces);
  }();
  count([](Counters& c) { ++c.replays; });
  if (const auto which = eager.observed.followed) {
    auto& chosen = *which == 0 ? guarded : *variants[*which - 1].guarded;
    auto& inputs = *which == 0 ? bound : variants[*which - 1].bound;
    if (*which > 0) {
      count([](Counters& c) { ++c.replay_differences; });
      chosen.replays.note_change();
      move_to_front(chosen);
    }
    if (eager.result.fixed != chosen.fixed) chosen.replays.note_change();
    const auto replayed = Clock::now();
    auto outputs = chosen.program->finish(chosen.program->forward(std::move(inputs)));
    chosen.replays.note_times(seconds(replayed - started), seconds(Clock::now() - replayed));
    return {std::move(outputs), std::move(eager.result.structure)};
  }
  const std::lock_guard<std::recursive_mutex> lock(compiling);
  if (!eager.observed.not_replayed.empty()) {
    log(LogTopic::breaks, "[replay] not possible: " + eager.observed.not_replayed);
    // It does what no program does: from now on it runs in parts.
    guarded.not_replayable = true;
    auto parted = new_guarded_program(call, now);
    parted->reason = "[capture] " + eager.observed.not_replayed;
    if (options.fullgraph) throw GraphBreak(parted->reason);
    run_in_parts(std::move(parted));
    return original(call.tensors);
  }
  count([](Counters& c) { ++c.replay_differences; });
  return take_other_path(guarded, eager, call, now);
}

/// The function has done something else than the program was made from. Its result stands; there may be
/// another program for that path, or there will be.
FlatResult CompiledFunction::Impl::take_other_path(GuardedProgram& guarded, verify::EagerCall& eager,
                                                   const FlatArguments& call, const GlobalState& now) {
  if (!eager.observed.capture) {
    guarded.replays.note_change();
    log(LogTopic::breaks, eager.observed.broken);
    return std::move(eager.result);
  }
  const auto is_path_of = [&](const GuardedProgram& other) {
    return verify::is_same_path(other.program->captured(), *eager.observed.capture);
  };
  if (is_path_of(guarded)) {
    // The same after all: a replay cannot tell.
    log(LogTopic::breaks,
        "[replay] not possible: the function does the same, and seems to do something else");
    guarded.not_replayable = true;
    return std::move(eager.result);
  }
  guarded.replays.note_change();
  for (const auto& variant : variants_of(guarded, call, now)) {
    if (!is_path_of(*variant.guarded)) continue;
    auto& other = *variant.guarded;
    other.replays.note_change();
    move_to_front(other);
    auto made = checked_call(other, eager, call, options);
    if (other.checks_left.load(std::memory_order_relaxed) > 0)
      other.checks_left.fetch_sub(1, std::memory_order_release);
    return made;
  }
  if (!may_compile(call, now)) return std::move(eager.result);
  auto made = new_guarded_program(call, now);
  made->replays.note_change();
  return compile_watched(std::move(made), eager, call, /*is_only_path=*/false);
}

/// The function itself runs, and the program beside it on copies.
FlatResult CompiledFunction::Impl::check(GuardedProgram& guarded, const FlatArguments& call,
                                         const EagerFunction& original, const GlobalState& now) {
  auto eager = verify::call_eagerly(call, original, *guarded.modules, options, guarded.program.get());
  auto& observed = eager.observed;
  if (!observed.capture && options.replay != Replay::off && guarded.can_be_replayed())
    return take_other_path(guarded, eager, call, now);
  if (!observed.capture) {
    stop_using(guarded, observed.broken);
    return std::move(eager.result);
  }
  // With a tensor in an argument's place that the function reached in two ways, it has one input more, or
  // other ones, or gives or changes another one of them; or the same inputs in other places.
  const auto does_something_else = [&] {
    return !verify::is_same_path(guarded.program->captured(), *observed.capture);
  };
  const auto reached_otherwise = [&] {
    return has_other_inputs(*observed.capture, guarded.program->captured()) ||
           (guarded.has_moved_tensors(call.tensors) && does_something_else());
  };
  const auto compile_again = [&](std::atomic<bool>& becomes_a_guard) {
    becomes_a_guard = true;
    count([](Counters& c) { ++c.recompiles; });
    return compile_watched(new_guarded_program(call, now), eager, call);
  };
  if (guarded.has_new_tensors(call.tensors) && reached_otherwise())
    return compile_again(guarded.pins_are_guards);
  if (guarded.has_other_flags() && does_something_else()) return compile_again(guarded.flags_are_guards);
  const bool may_differ =
      options.replay == Replay::every ||
      (options.replay == Replay::automatic && guarded.can_be_replayed() && !at::GradMode::is_enabled());
  if (may_differ && does_something_else()) return take_other_path(guarded, eager, call, now);
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
  impl_->options = options;
  if (const auto every = env_number("GRAFT_VERIFY_EVERY")) impl_->options.verify_every = *every;
}
CompiledFunction::~CompiledFunction() = default;

FlatResult CompiledFunction::call(const FlatArguments& arguments, const EagerFunction& original) {
  if (impl_->options.backend == Backend::eager || disabled() || capturing())
    return original(arguments.tensors);
  return impl_->call(arguments, original);
}

std::string CompiledFunction::explain(const FlatArguments& arguments, const EagerFunction& original,
                                      const std::string& level) {
  const std::lock_guard<std::recursive_mutex> lock(impl_->compiling);
  return graft::explain(arguments, original, impl_->roots, impl_->options, level);
}

}  // namespace graft::detail
