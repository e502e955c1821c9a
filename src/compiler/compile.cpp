// The compiler from above: find a program whose guards hold, or capture and compile one; check it against
// eager until it is trusted; run it.
#include <chrono>
#include <shared_mutex>

#include "capture/recorder.h"
#include "compiler/check.h"
#include "compiler/checked_call.h"
#include "compiler/counters.h"
#include "compiler/entry.h"
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
  Made compile_and_call(const Flat& call, const Original& original, const Surroundings& now);
  Made call_entry(Entry& entry, std::vector<at::Tensor> bound, const Flat& call, const Original& original);
};

Made Core::Impl::call(const Flat& call, const Original& original) {
  const auto now = Surroundings::now();
  std::vector<at::Tensor> bound;
  auto entry = find(call, now, bound);
  if (logs(LogTopic::guards)) log_failures(call, now, entry.get());
  if (!entry) {
    const std::lock_guard<std::recursive_mutex> lock(compiling);
    forget_after_reset();
    entry = find(call, now, bound);  // another thread may have made it meanwhile
    if (!entry) return compile_and_call(call, original, now);
  }
  return call_entry(*entry, std::move(bound), call, original);
}

Made Core::Impl::compile_and_call(const Flat& call, const Original& original, const Surroundings& now) {
  if (!may_compile(call, now)) return original(call.tensors);
  const auto started = std::chrono::steady_clock::now();
  auto entry = std::make_shared<Entry>();
  entry->arguments = ArgumentGuards(call.tensors, call.fixed);
  entry->surroundings = now;
  entry->modules = std::make_shared<ModuleTree>(roots);

  const RandomState before({}, call.tensors);
  std::optional<Capture> captured;
  try {
    captured = capture_call(call, original, *entry->modules, entry->frame);
  } catch (const GraphBreak& found) {
    if (options.fullgraph) throw;
    entry->reason = found.reason();
    log(LogTopic::breaks, entry->reason + (found.backtrace().empty() ? "" : "\n" + found.backtrace()));
  } catch (const std::exception& error) {
    // Either the function itself throws, then it does so again and that is the caller's to see; or it does
    // what a capture cannot bear (reads through a data pointer, say).
    before.restore();
    auto made = original(call.tensors);
    // torch appends a backtrace of its own after the first line.
    const std::string text = error.what();
    entry->reason = "[capture] the function fails under capture only: " + text.substr(0, text.find('\n'));
    if (options.fullgraph) throw GraphBreak(entry->reason);
    log(LogTopic::breaks, entry->reason);
    add_break(std::move(entry));
    return made;
  }
  if (!captured) {
    before.restore();
    add_break(std::move(entry));
    return original(call.tensors);
  }
  // From here on an error is the compiler's own, and the caller's to see.
  guard_inputs(*captured, *entry);
  if (logs(LogTopic::guards))
    for (const auto& line : guard_lines(entry->arguments, *entry->modules, captured->sources))
      log(LogTopic::guards, "made: " + line);
  entry->program = std::make_shared<Program>(*captured, options);
  count([&](Counters& c) {
    ++c.graphs;
    for (const auto* executable : entry->program->executables()) {
      c.kernels += executable->kernels();
      c.extern_calls += executable->extern_calls();
      c.cache_hits += executable->cache_hits();
    }
    c.compile_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  });
  before.restore();
  auto made = first_call(*entry, *captured, call, original, options);
  add(entry);
  return made;
}

Made Core::Impl::call_entry(Entry& entry, std::vector<at::Tensor> bound, const Flat& call,
                            const Original& original) {
  if (entry.runs_eagerly()) return original(call.tensors);
  const auto number = entry.calls.fetch_add(1, std::memory_order_relaxed);
  const bool sampled = options.verify_every > 0 && number % options.verify_every == 0;
  if (entry.checks_left.load(std::memory_order_acquire) > 0 || sampled) {
    const std::lock_guard<std::mutex> lock(entry.checking);
    if (entry.checks_left.load(std::memory_order_relaxed) > 0 || sampled)
      return checked_call(entry, std::move(bound), call, original, options);
  }
  return {entry.program->finish(entry.program->forward(std::move(bound), /*in_place=*/true)), entry.frame};
}

Core::Core(std::vector<std::shared_ptr<torch::nn::Module>> modules, CompileOptions options)
    : impl_(std::make_shared<Impl>()) {
  logs(LogTopic::graph);  // a wrong GRAFT_LOGS is an error now, not in the middle of the work
  if (options.dynamic == Dynamic::on)
    log_warning(
        "[compile] dynamic shapes are to come: dynamic=on compiles each shape on its own, as auto does");
  impl_->roots = std::move(modules);
  impl_->options = options;
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
