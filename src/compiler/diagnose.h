// After a mismatch: which node of the graph is to blame.
#pragma once
#include <string>

#include "compiler/entry.h"

namespace graft {

/// For a program that differs on the data it was captured on: compiles the graph once more with every value
/// as a result and compares each with the reference. Text to append to the error; empty if no node differs.
std::string first_difference(const Capture& captured, const CompileOptions& options);

/// For a program that was right at its capture and is not now: captures again and finds the first node that
/// is not the same, which is where a value was taken for a constant.
std::string changed_since_capture(const Entry& entry, const detail::Flat& call,
                                  const detail::Original& original);

}  // namespace graft
