// Which block of a model a path lies in: the unit that regional programs are cut into and that frozen weights
// are shared out by.
#pragma once
#include <string>

namespace graft {

/// "model.layers.3.mlp" -> "model.layers.3"; empty if no part is a number.
std::string block_of(const std::string& path);

}  // namespace graft
