// Calls that are watched: the function runs as eager code, once, and what it did is recorded. A program is
// made from such a call, and compared with it.
#pragma once
#include <string>
#include <vector>

#include "capture/capture.h"
#include "graft/compile.h"
#include "support/guarded_state.h"
#include "verify/checked_program.h"
#include "verify/generator_states.h"

namespace graft::verify {

/// Why no program is made from a function that changes what other code of graft goes by.
constexpr const char* changes_state =
    "[capture] the function changes which adapters are active, or a layer of a model, which compiled code "
    "would "
    "not do again. Make such changes outside of the compiled function";

/// One call of the function itself.
struct EagerCall {
  ObservedRun observed;  ///< but for its outputs, which are in `result`
  detail::FlatResult result;
  GeneratorStates before, after;  ///< of the generators that it drew from
  std::vector<StateRead> states;  ///< on the host, that its code has read
  /// The program's, that it is to be compared in: for these its outputs have kept their history. The function
  /// may then take the path of another program, which has others.
  std::vector<std::vector<bool>> partial_backwards;
  const CheckedProgram* partial_backwards_of;
  /// Nothing that the function was given has changed, and no random number was drawn. What its code did
  /// besides has happened.
  void undo() const;
};

/// With `fullgraph` a GraphBreak where no graph can hold what it does; then it is as if it had not been
/// called. `program`: that it will be compared with; null if there is none yet. `told`: what is to be an
/// input that replays tell. `assumes`: see CaptureRequest.
EagerCall call_eagerly(const detail::FlatArguments& call, const detail::EagerFunction& function,
                       const ModuleTree& modules, const CompileOptions& options,
                       const CheckedProgram* program = nullptr, const ToldInputs& told = {},
                       bool assumes = true);

/// How the function does something else than when it was captured; empty if it does the same, number by
/// number.
std::string changed_since_capture(const CapturedFunction& then, const CapturedFunction& now);

/// Whether it does the same.
bool is_same_path(const CapturedFunction& then, const CapturedFunction& now);

/// What a comparison gave: the call's result, or how the program differs.
struct Verdict {
  std::string difference;  ///< a clause; empty if the program is right
  detail::FlatResult result;
};

/// Runs the program, as later calls do, on copies of what the function was given (`bound`: the program's
/// inputs, of this call), and with `compares` compares all that a caller can see. On success the tensors that
/// the function changes have the program's values.
Verdict check_program(const CheckedProgram& program, std::vector<at::Tensor> bound, const EagerCall& eager,
                      bool compares);

/// Why what the function keeps would not be renewed by compiled code; empty if it keeps nothing. Lets go of
/// what the eager call gave. Where it keeps something, `given` becomes what the eager call gave (not of a
/// program that trains).
std::string tensor_kept_by_function(EagerCall& eager, detail::FlatResult& given, bool trains);

}  // namespace graft::verify
