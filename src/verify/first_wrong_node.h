// After a mismatch: which node of the graph is to blame.
#pragma once
#include <string>

#include "compiler/guarded_program.h"

namespace graft {

/// For a program that differs on the data it was captured on: compiles the graph once more with every value
/// as a result and compares each with the reference. Text to append to the error; empty if no node differs.
std::string first_difference(const Capture& captured, const CompileOptions& options);

/// A node and its module, in words.
std::string at_node(const ir::Node& node);

}  // namespace graft
