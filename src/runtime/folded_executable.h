// A program whose work on weights alone is done once, and again when a weight changes.
#pragma once
#include <functional>
#include <memory>

#include "passes/weight_folding.h"
#include "runtime/executable.h"

namespace graft {

/// `main` runs folding.main. Of groups that do the same one is built.
std::unique_ptr<Executable> make_folded(passes::Folding folding, std::unique_ptr<Executable> main,
                                        const std::function<std::unique_ptr<Executable>(ir::Graph)>& build);

}  // namespace graft
