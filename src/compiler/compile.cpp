// The compiler from above: find a program whose guards hold, or capture and compile one; check it against
// eager until it is trusted; run it.
#include <algorithm>
#include <chrono>
#include <shared_mutex>

#include "capture/recorder.h"
#include "verify/watched_call.h"
#include "compiler/counters.h"
#include "compiler/guarded_program.h"
#include "compiler/explain.h"
#include "support/env.h"
#include "support/log.h"

namespace graft::detail {
namespace {

/// Calls inside a capture are part of what is captured.
bool capturing() { return Recorder::active(); }

bool disabled() {
  static const bool off = env("GRAFT_DISABLE").value_or("0") == "1";
  return off;
}

/// A program that was made runs no more.
void give_up(Entry& entry, const std::string& why) {
  log(LogTopic::breaks, why);
  entry.distrusted = true;
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
bool has_other_inputs(const Capture& now, const Program& then) {
  const auto by_input = [](const Output& output) {
    return output.kind == Output::Kind::input || output.kind == Output::Kind::view;
  };
  const auto same_output = [&](const Output& a, const Output& b) {
    return by_input(a) ? by_input(b) && a.index == b.index : !by_input(b);
  };
  const auto same_mutation = [](const Mutation& a, const Mutation& b) { return a.input == b.input; };
  return now.sources != then.sources() || reads_other_inputs(now.graph, then.captured_graph()) ||
         !std::ranges::equal(now.outputs, then.outputs(), same_output) ||
         !std::ranges::equal(now.mutations, then.mutations(), same_mutation);
}

/// Whether a tensor that is neither an argument nor a module's is another one than at the capture.
bool reaches_others(const Capture& now, const Program& then) {
  return !std::ranges::equal(now.outside, then.outside(), [](const auto& a, const auto& b) {
    return a._unsafe_get_target() == b._unsafe_get_target();
  });
}

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace

struct Core::Impl {
  std::vector<std::shared_ptr<torch::nn::Module>> roots;
  CompileOptions options;

  std::shared_mutex entries_guard;
  std::vector<std::shared_ptr<Entry>> entries;  // the newest comes first
  uint64_t generation = reset_generation();
  std::recursive_mutex compiling;
  bool limit_warned = false;

  std::shared_ptr<Entry> find(const Flat& call, const Surroundings& now, std::vector<at::Tensor>& bound) {
    const std::shared_lock<std::shared_mutex> lock(entries_guard);
    if (generation != reset_generation()) return nullptr;
    for (const auto& entry : entries) {
      if (!entry->holds(call, now)) continue;
      if (entry->runs_eagerly()) return entry;
      if (auto inputs = entry->bind(call.tensors)) {
        bound = std::move(*inputs);
        return entry;
      }
    }
    return nullptr;
  }

  /// Says for each program that a call does not fit, why: up to the one that it fits.
  void log_failures(const Flat& call, const Surroundings& now, const Entry* fitting) {
    const std::shared_lock<std::shared_mutex> lock(entries_guard);
    for (const auto& entry : entries) {
      if (entry.get() == fitting) return;
      log(LogTopic::guards, "failed: " + entry->difference(call, now));
    }
  }

  void add(std::shared_ptr<Entry> entry) {
    const std::unique_lock<std::shared_mutex> lock(entries_guard);
    entries.insert(entries.begin(), std::move(entry));
  }

  /// One without a program: such calls run eagerly from now on.
  void add_break(std::shared_ptr<Entry> entry) {
    count([](Counters& c) { ++c.graph_breaks; });
    add(std::move(entry));
  }

  void forget_after_reset() {
    const std::unique_lock<std::shared_mutex> lock(entries_guard);
    if (generation == reset_generation()) return;
    entries.clear();
    generation = reset_generation();
    limit_warned = false;
  }

  /// False when there are too many programs already.
  bool may_compile(const Flat& call, const Surroundings& now) {
    const std::shared_lock<std::shared_mutex> lock(entries_guard);
    if (entries.empty()) return true;
    const auto why = entries.front()->difference(call, now);
    if (static_cast<int64_t>(entries.size()) < options.recompile_limit) {
      count([](Counters& c) { ++c.recompiles; });
      log(LogTopic::recompiles, "compiling again: " + why);
      return true;
    }
    const auto message = "[compile] the function has " + std::to_string(entries.size()) +
                         " programs, which is recompile_limit; another would be needed because " + why;
    if (options.fullgraph) throw Error(message);
    if (!limit_warned) log_warning(message + ". It runs eagerly from now on for such calls");
    limit_warned = true;
    return false;
  }

  Made call(const Flat& call, const Original& original);
  Made watch_and_compile(const Flat& call, const Original& original, const Surroundings& now);
  Made compile_watched(std::shared_ptr<Entry> entry, EagerCall& eager, const Flat& call);
  Made call_entry(Entry& entry, std::vector<at::Tensor> bound, const Flat& call, const Original& original,
                  const Surroundings& now);
  Made check(Entry& entry, const Flat& call, const Original& original, const Surroundings& now);
  std::shared_ptr<Entry> new_entry(const Flat& call, const Surroundings& now) const;
};

Made Core::Impl::call(const Flat& call, const Original& original) {
  const auto now = Surroundings::now();
  std::vector<at::Tensor> bound;
  auto entry = find(call, now, bound);
  if (logs(LogTopic::guards)) log_failures(call, now, entry.get());
  if (!entry) {
    // A program has no forward-mode tangents (its guards say so): they would be dropped.
    if (std::any_of(call.tensors.begin(), call.tensors.end(), has_tangent)) {
      if (options.fullgraph) throw GraphBreak("[compile] an argument has a forward-mode tangent");
      return original(call.tensors);
    }
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    forget_after_reset();
    entry = find(call, now, bound);  // another thread may have made it meanwhile
    if (!entry) return watch_and_compile(call, original, now);
  }
  return call_entry(*entry, std::move(bound), call, original, now);
}

std::shared_ptr<Entry> Core::Impl::new_entry(const Flat& call, const Surroundings& now) const {
  auto entry = std::make_shared<Entry>();
  entry->arguments = ArgumentGuards(call.tensors, call.fixed);
  entry->surroundings = now;
  entry->modules = std::make_shared<ModuleTree>(roots);
  return entry;
}

Made Core::Impl::watch_and_compile(const Flat& call, const Original& original, const Surroundings& now) {
  if (!may_compile(call, now)) return original(call.tensors);
  auto entry = new_entry(call, now);
  if (call.refused) {
    entry->reason = std::string("[capture] ") + call.refused;
    if (options.fullgraph) throw GraphBreak(entry->reason);
    log(LogTopic::breaks, entry->reason);
    add_break(std::move(entry));
    return original(call.tensors);
  }
  auto eager = call_eagerly(call, original, *entry->modules, options);
  return compile_watched(std::move(entry), eager, call);
}

/// Makes a program from a call that was watched. Where none can be made, the function's own result stands.
Made Core::Impl::compile_watched(std::shared_ptr<Entry> entry, EagerCall& eager, const Flat& call) {
  entry->states = eager.states;
  if (!eager.observed.capture) {
    entry->reason = eager.observed.broken;
    log(LogTopic::breaks,
        entry->reason + (eager.observed.backtrace.empty() ? "" : "\n" + eager.observed.backtrace));
    add_break(std::move(entry));
    return std::move(eager.made);
  }
  const auto& captured = *eager.observed.capture;
  entry->frame = eager.made.frame;
  entry->fixed = eager.made.fixed;
  guard_inputs(captured, call.tensors, *entry);
  if (logs(LogTopic::guards))
    for (const auto& line : guard_lines(entry->arguments, *entry->modules, captured.sources, entry->states))
      log(LogTopic::guards, "made: " + line);
  try {
    const auto started = std::chrono::steady_clock::now();
    entry->program = std::make_shared<Program>(captured, options);
    count([&](Counters& c) {
      ++c.graphs;
      for (const auto* executable : entry->program->executables()) {
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
  auto made = checked_call(*entry, eager, call, options);
  entry->checks_left = options.verify ? checks_before_trust - 1 : 0;
  if (auto kept = kept_beyond(eager, made, entry->program->trains()); !kept.empty()) {
    if (options.fullgraph) {
      eager.undo();
      throw GraphBreak(kept);
    }
    entry->program.reset();
    entry->reason = std::move(kept);
    log(LogTopic::breaks, entry->reason);
    add_break(std::move(entry));
    return made;
  }
  add(std::move(entry));
  return made;
}

Made Core::Impl::call_entry(Entry& entry, std::vector<at::Tensor> bound, const Flat& call,
                            const Original& original, const Surroundings& now) {
  if (entry.runs_eagerly()) return original(call.tensors);
  const auto number = entry.calls.fetch_add(1, std::memory_order_relaxed);
  const bool sampled = options.verify_every > 0 && number % options.verify_every == 0;
  const auto wanted = [&] {
    return entry.checks_left.load(std::memory_order_acquire) > 0 || entry.has_new_tensors(call.tensors) ||
           (options.verify && entry.program->has_unchecked_backward());
  };
  if (sampled || wanted()) {
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    if (entry.runs_eagerly()) return original(call.tensors);
    // An argument that is now also a parameter is one input of a capture, and two of the program.
    if (entry.coincide(bound)) return original(call.tensors);
    if (sampled || wanted()) return check(entry, call, original, now);
  }
  return {entry.program->finish(entry.program->forward(std::move(bound))), entry.frame};
}

/// The function itself runs, and the program beside it on copies.
Made Core::Impl::check(Entry& entry, const Flat& call, const Original& original, const Surroundings& now) {
  auto eager = call_eagerly(call, original, *entry.modules, options, entry.program.get());
  auto& observed = eager.observed;
  if (!observed.capture) {
    give_up(entry, observed.broken);
    return std::move(eager.made);
  }
  // With a tensor in an argument's place that the function reached in two ways, it has one input more, or
  // other ones, or gives or changes another one of them; or the same inputs in other places.
  const auto reached_otherwise = [&] {
    return has_other_inputs(*observed.capture, *entry.program) ||
           (entry.has_moved_tensors(call.tensors) &&
            !changed_since_capture(entry, *observed.capture).empty());
  };
  if (entry.has_new_tensors(call.tensors) && reached_otherwise()) {
    entry.pins_are_guards = true;
    count([](Counters& c) { ++c.recompiles; });
    return compile_watched(new_entry(call, now), eager, call);
  }
  if (reaches_others(*observed.capture, *entry.program)) {
    const char* why =
        "[capture] the function works on other tensors than at its capture, besides its arguments: a "
        "variable "
        "that it reads has been given another one, or it makes them past the dispatcher (data())";
    if (options.fullgraph) {
      eager.undo();
      throw GraphBreak(why);
    }
    give_up(entry, why);
    return std::move(eager.made);
  }
  auto made = checked_call(entry, eager, call, options);
  if (auto kept = kept_beyond(eager, made, entry.program->trains()); !kept.empty() && !entry.distrusted) {
    give_up(entry, kept);
    return made;
  }
  if (entry.checks_left.load(std::memory_order_relaxed) > 0)
    entry.checks_left.fetch_sub(1, std::memory_order_release);
  return made;
}

Core::Core(std::vector<std::shared_ptr<torch::nn::Module>> modules, CompileOptions options)
    : impl_(std::make_shared<Impl>()) {
  logs(LogTopic::graph);  // a wrong GRAFT_LOGS is an error now, not in the middle of the work
  if (options.dynamic == Dynamic::on)
    log_warning(
        "[compile] dynamic shapes are to come: dynamic=on compiles each shape on its own, as auto does");
  impl_->roots = std::move(modules);
  impl_->options = options;
  if (const auto every = env_number("GRAFT_VERIFY_EVERY")) impl_->options.verify_every = *every;
}
Core::~Core() = default;

Made Core::call(const Flat& arguments, const Original& original) {
  if (impl_->options.backend == Backend::eager || disabled() || capturing())
    return original(arguments.tensors);
  return impl_->call(arguments, original);
}

std::string Core::explain(const Flat& arguments, const Original& original, const std::string& level) {
  const std::lock_guard<std::recursive_mutex> lock(impl_->compiling);
  return graft::explain(arguments, original, impl_->roots, impl_->options, level);
}

}  // namespace graft::detail
