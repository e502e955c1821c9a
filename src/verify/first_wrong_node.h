// After a mismatch: which node of the graph is to blame.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "capture/capture.h"
#include "runtime/executable.h"

namespace graft::verify {

/// Compiles a graph as the program was compiled.
using BuildExecutable = std::function<std::unique_ptr<Executable>(ir::Graph)>;

/// For a program that differs on the data it was captured on: compiles the graph once more with every value
/// as a result and compares each with the reference. Text to append to the error; empty if no node differs.
std::string first_wrong_node(const Capture& captured, const BuildExecutable& build);

/// A node and its module, in words.
std::string node_text(const ir::Node& node);

}  // namespace graft::verify
