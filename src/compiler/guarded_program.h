// One program of a compiled function with its guards, and how far it is trusted.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "capture/module_tree.h"
#include "compiler/guards.h"
#include "compiler/program.h"
#include "compiler/replay_policy.h"
#include "compiler/split_function.h"
#include "support/guarded_state.h"

namespace graft {

/// How many calls are compared with eager before a program is trusted.
constexpr int checks_before_trust = 2;

struct GuardedProgram {
  ArgumentGuards arguments;
  /// Other numbers among the arguments are no other program: where they are not those of the capture, the
  /// function's code is replayed, or it runs in any case.
  std::atomic<bool> takes_any_numbers{false};
  GlobalState global_state;
  std::shared_ptr<const ModuleTree> modules;
  /// None: no single graph holds the function, for the reason given. It runs in parts, or eagerly.
  std::shared_ptr<Program> program;
  std::shared_ptr<SplitFunction> parts;
  std::string reason;
  std::vector<TensorGuard> inputs;        ///< of the program's inputs that are no arguments, by input
  std::shared_ptr<const void> structure;  ///< of the function's result
  std::vector<int64_t> fixed;             ///< what is in the result that is not a tensor
  std::vector<StateRead> states;          ///< on the host, that the capture has read
  std::unique_ptr<MemoryGuard> memory;

  /// An argument that was also a parameter or a buffer at the capture (the program has one input for both).
  struct ArgumentInSlot {
    size_t argument, slot;
  };
  std::vector<ArgumentInSlot> arguments_in_slots;
  /// The arguments of the capture. The function may reach the same tensor in another way (a captured one);
  /// then the program is wrong for other tensors. An argument is free once a call with another tensor was
  /// compared.
  struct Pinned {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::atomic<bool> free{false};
  };
  std::deque<Pinned> pinned;
  /// With these arguments the function does something else: the pinned ones are guards.
  std::atomic<bool> pins_are_guards{false};
  /// A call with these arguments was compared: those that are other tensors than the pinned ones free them.
  void free_pins(const std::vector<at::Tensor>& given);
  /// Whether two of the program's inputs are one tensor.
  bool has_duplicates(const std::vector<at::Tensor>& bound) const;
  /// Whether one of them is another tensor than any that was compared.
  bool has_new_tensors(const std::vector<at::Tensor>& given) const;
  /// Whether an argument of the capture is now another one of them.
  bool has_moved_tensors(const std::vector<at::Tensor>& given) const;

  /// Some operators take another way for a parameter that requires a gradient, also without gradients
  /// (matmul). So little depends on it that it is a guard only of a program that was found to.
  std::atomic<bool> flags_are_guards{false};
  /// Whether a parameter or buffer requires a gradient that did not at the capture, or the other way round.
  bool has_other_flags() const;

  std::atomic<bool> distrusted{false};  ///< differed from eager, and the caller chose eager for that case
  bool runs_eagerly() const { return !program || distrusted.load(std::memory_order_acquire); }

  std::atomic<int> checks_left{checks_before_trust};
  std::atomic<int64_t> calls{0};

  ReplayPolicy replays;
  /// In a replay the code did what no program does: so many of the next calls are watched, until there is
  /// one.
  std::atomic<int> watches_left{0};
  /// What changes and no guard sees: from the next watched call on it is to be told by replays.
  ToldInputs changing;
  std::atomic<bool> not_replayable{false};  ///< the reason is in the log
  /// Not where it writes into its inputs: the code may look at what it has written (through a pointer), and
  /// in a replay that has not happened yet.
  bool can_be_replayed() const {
    return program && program->captured().trace && program->captured().trace->refused.empty() &&
           !program->captured().trace->writes_inputs && !not_replayable.load(std::memory_order_relaxed);
  }

  /// The program alone.
  detail::FlatResult run(std::vector<at::Tensor> bound) const {
    return {program->finish(program->forward(std::move(bound))), structure};
  }

  /// A watched call took the program's path. If a replay says again and again that there is another, it is
  /// not right about this function.
  void note_same_path();

  /// The tensors for the program's inputs (tangents left out); nothing if one of them is not what it was.
  /// C++ numbers are those of the capture, and tensors that replays tell undefined.
  std::optional<std::vector<at::Tensor>> bind(const std::vector<at::Tensor>& arguments) const;
  /// Whether an input that replays tell may be this tensor.
  bool may_be_told(size_t input, const at::Tensor& tensor) const {
    return program->captured().sources[input].kind == Source::Kind::told && inputs[input].holds(tensor);
  }
  /// Whether all guards over arguments, global state and modules hold.
  bool holds(const detail::FlatArguments& call, const GlobalState& now) const {
    return holds(call, now, takes_any_numbers.load(std::memory_order_acquire));
  }
  bool holds(const detail::FlatArguments& call, const GlobalState& now, bool any_numbers) const;
  /// Why not, in words.
  std::string difference(const detail::FlatArguments& call, const GlobalState& now) const;
};

/// Whether the function works on other tensors than at the capture, by where they come from.
bool has_other_inputs(const CapturedFunction& now, const CapturedFunction& then);
/// Whether a tensor that is neither an argument nor a module's is another one than at the capture.
bool uses_other_outside_tensors(const CapturedFunction& now, const CapturedFunction& then);
bool does_something_else(const CapturedFunction& now, const CapturedFunction& then);
/// Where all that differs is C++ numbers and tensors from elsewhere: what replays have to tell for one
/// program to serve both. Nothing if more differs.
std::optional<ToldInputs> told_to_serve_both(const CapturedFunction& now, const CapturedFunction& then);

/// The call with what the function reads besides as further arguments, which its code does not look at.
detail::FlatArguments with_state(const detail::FlatArguments& call, const State& state);

/// All guards of a program, a line each.
std::vector<std::string> guard_lines(const ArgumentGuards& arguments, const ModuleTree& modules,
                                     const std::vector<Source>& sources,
                                     const std::vector<StateRead>& states);

/// The guards of a program that its capture tells: over parameters, buffers and outside tensors, as they are
/// now.
void guard_inputs(const Capture& captured, const std::vector<at::Tensor>& arguments, GuardedProgram& guarded);

}  // namespace graft
