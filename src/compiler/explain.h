// compiled.explain(): what compilation makes of a call, in words.
#pragma once
#include <string>

#include "graft/compile.h"

namespace graft {

/// Captures and compiles afresh and changes nothing, neither tensors nor random state nor the programs kept.
/// `known_break`: why such calls run eagerly, found in an earlier call; empty if they do not.
std::string explain(const detail::FlatArguments& call, const detail::EagerFunction& original,
                    const std::vector<std::shared_ptr<torch::nn::Module>>& roots,
                    const CompileOptions& options, const std::string& level, const std::string& known_break);

}  // namespace graft
