// All programs of one compiled function, and what a call does with them. Three files define it: compile.cpp
// (the life of a call), other_paths.cpp (calls in which the function did something else than a program),
// compiled_function.cpp (the list of programs, and what is said of breaks).
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "compiler/counters.h"
#include "compiler/guarded_program.h"
#include "graft/compile.h"
#include "verify/watched_call.h"

namespace graft::detail {

struct CompiledFunction::Impl {
  std::vector<std::shared_ptr<torch::nn::Module>> roots;
  CompileOptions options;

  std::shared_mutex programs_guard;
  std::vector<std::shared_ptr<GuardedProgram>> programs;  // the newest comes first
  uint64_t generation = reset_generation();
  std::recursive_mutex compiling;
  bool limit_warned = false, break_warned = false;
  /// Calls in which a program had taken for granted what was not so. After some of them nothing is any more:
  /// such a comparison is a read like others.
  int64_t wrong_assumptions = 0;
  static constexpr int64_t most_wrong_assumptions = 8;
  bool assumes() const { return wrong_assumptions < most_wrong_assumptions; }

  std::shared_ptr<GuardedProgram> find(const FlatArguments& call, const GlobalState& now,
                                       std::vector<at::Tensor>& bound);

  /// Says for each program that a call does not fit, why: up to the one that it fits.
  void log_failed_guards(const FlatArguments& call, const GlobalState& now, const GuardedProgram* fitting);

  void add(std::shared_ptr<GuardedProgram> guarded);

  struct Variant {
    std::shared_ptr<GuardedProgram> guarded;
    std::vector<at::Tensor> bound;
  };
  /// The other programs whose guards hold for a call, made from other paths through the function.
  std::vector<Variant> variants_of(const GuardedProgram& guarded, const FlatArguments& call,
                                   const GlobalState& now);

  /// The function took the path of this program: it will be tried first.
  void move_to_front(const GuardedProgram& guarded);

  /// Each is logged, and the first is a warning: that large parts of a program are not compiled should be
  /// seen.
  void report_break(const std::string& why, const std::string& code = "", bool in_parts = false);

  /// The program runs no more: the function does instead.
  void stop_using(GuardedProgram& guarded, const std::string& why);

  /// Why such a call runs eagerly, if it is known to.
  std::string known_break(const FlatArguments& call);

  /// One without a program: such calls run eagerly from now on.
  void add_break(std::shared_ptr<GuardedProgram> guarded);

  /// Such calls run part by part from now on.
  void run_in_parts(std::shared_ptr<GuardedProgram> guarded);

  void drop_programs_after_reset();

  /// False when there are too many programs already.
  bool may_compile(const FlatArguments& call, const GlobalState& now);

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
  FlatResult call_with_refused_data(GuardedProgram& guarded, const FlatArguments& call,
                                    const EagerFunction& original);
  FlatResult take_path_of_other_answer(const FlatArguments& call, const EagerFunction& original,
                                       const GlobalState& now);
  FlatResult use_path_of(verify::EagerCall& eager, const FlatArguments& call, const GlobalState& now);
  std::shared_ptr<GuardedProgram> new_guarded_program(const FlatArguments& call,
                                                      const GlobalState& now) const;
};

}  // namespace graft::detail
