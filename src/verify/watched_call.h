// Calls that are watched: the function runs as eager code, once, and what it did is recorded. A program is
// made from such a call, and compared with it.
#pragma once
#include "verify/tolerance.h"
#include "compiler/guarded_program.h"

namespace graft::detail {

/// One call of the function itself.
struct EagerCall {
  Observed observed;  ///< but for its outputs, which are in `made`
  Made made;
  RandomState before, after;      ///< of the generators that it drew from
  std::vector<StateRead> states;  ///< on the host, that its code has read
  /// The program's, that it is to be compared in: for these its outputs have kept their history.
  std::vector<std::vector<bool>> partial_backwards;
  /// Nothing that the function was given has changed, and no random number was drawn. What its code did
  /// besides has happened.
  void undo() const;
};

/// With `fullgraph` a GraphBreak where no graph can hold what it does; then it is as if it had not been
/// called. `program`: that it will be compared with; null if there is none yet.
EagerCall call_eagerly(const Flat& call, const Original& original, const ModuleTree& modules,
                       const CompileOptions& options, const Program* program = nullptr);

/// Runs the program, as later calls do, on copies of what the function was given, and compares all that a
/// caller can see. Gives the call's result. Mismatch, and then `eager` is undone; or the entry is distrusted,
/// as the options say.
Made checked_call(Entry& entry, EagerCall& eager, const Flat& call, const CompileOptions& options);

/// How the function does something else than at the capture; empty if it does the same, number by number.
std::string changed_since_capture(const Entry& entry, const Capture& now);

/// Why what the function keeps would not be renewed by compiled code; empty if it keeps nothing. Lets go of
/// what the eager call gave. Where it keeps something, `given` becomes what the eager call gave (not of a
/// program that trains).
std::string kept_beyond(EagerCall& eager, Made& given, bool trains);

}  // namespace graft::detail
