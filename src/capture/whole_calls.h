// Operators that are called as what they are while somebody watches, in place of their parts.
#pragma once
#include <string_view>

namespace graft {

/// The operator that the code has called where one of its parts reads a value on this thread; empty if none.
std::string_view called_as();

}  // namespace graft
