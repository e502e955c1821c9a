// Where the time of a scheduled program went, for GRAFT_LOGS=times.
#pragma once
#include <deque>
#include <string>

#include "runtime/action.h"

namespace graft::runtime {

/// A line for each kind of action, the longest first; `what` is the program in words.
std::string times_of(const std::deque<Action>& actions, int64_t runs, const std::string& what);

}  // namespace graft::runtime
