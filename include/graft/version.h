// Which graft this is and what it was built with.
#pragma once
#include <string>

namespace graft {

std::string version();
/// One line for bug reports: graft, torch, LLVM, CUDA, processor.
std::string build_summary();

}  // namespace graft
