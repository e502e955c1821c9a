// Which block of a model a path lies in: the unit that regional programs are cut into and that frozen weights
// are shared out by.
#pragma once
#include <string>

namespace graft {

/// "model.layers.3.mlp" -> "model.layers.3"; empty if no part is a number. A stage is a list of blocks, not
/// a block: "encoder.stages.1.layers.3.layer.0" -> "encoder.stages.1.layers.3".
std::string block_of(const std::string& path);

}  // namespace graft
