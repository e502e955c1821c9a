// Compiled against eager: what differs in what a caller can see, and the smallest program that shows it.
#pragma once
#include <optional>

#include "stateful_program.h"

namespace graft::stateful {

struct Failure {
  std::string kind;  ///< the same for failures of one sort: what a smaller program must still show
  std::string text;
};

/// Runs the program eagerly, compiled and, where rounding matters, in float64.
std::optional<Failure> judge(const Program& program);

/// With parts taken away as long as it fails in the same way.
Program minified(Program program, const std::string& kind);

}  // namespace graft::stateful
