// Where the user's own code stands in the stack: neither torch's functions, nor graft's, nor the standard
// library's.
#pragma once
#include <string>
#include <vector>

namespace graft {

/// The functions that called each other down to here, as far as they are the user's, the innermost first, in
/// words: "net.cpp:12, in Net::forward(at::Tensor)". Without debug information the program and the place in
/// it stand for the line. Looking them up may take a tenth of a second.
std::vector<std::string> user_code_on_stack();

}  // namespace graft
