// One program of a compiled function with its guards, and how far it is trusted.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "capture/module_tree.h"
#include "compiler/guards.h"
#include "compiler/program.h"

namespace graft {

/// How many calls are compared with eager before a program is trusted.
constexpr int checks_before_trust = 2;

struct Entry {
  ArgumentGuards arguments;
  Surroundings surroundings;
  std::shared_ptr<const ModuleTree> modules;
  /// None: the function runs eagerly, for the reason given.
  std::shared_ptr<Program> program;
  std::string reason;
  std::vector<TensorGuard> inputs;    ///< of the program's inputs that are no arguments, by input
  std::shared_ptr<const void> frame;  ///< of the function's result

  std::atomic<bool> distrusted{false};  ///< differed from eager, and the caller chose eager for that case
  bool runs_eagerly() const { return !program || distrusted.load(std::memory_order_acquire); }

  std::mutex checking;
  std::atomic<int> checks_left{checks_before_trust};
  std::atomic<int64_t> calls{0};

  /// The tensors for the program's inputs (tangents left out); nothing if one of them is not what it was.
  std::optional<std::vector<at::Tensor>> bind(const std::vector<at::Tensor>& arguments) const;
  /// Whether all guards over arguments, surroundings and modules hold.
  bool holds(const detail::Flat& call, const Surroundings& now) const;
  /// Why not, in words.
  std::string difference(const detail::Flat& call, const Surroundings& now) const;
};

/// All guards of a program, a line each.
std::vector<std::string> guard_lines(const ArgumentGuards& arguments, const ModuleTree& modules,
                                     const std::vector<Source>& sources);

}  // namespace graft
