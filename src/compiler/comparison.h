// Whether compiled results are eager's, up to rounding: which judge is asked when.
#pragma once
#include <string>
#include <vector>

#include "compiler/check.h"
#include "compiler/program.h"

namespace graft {

/// How the program's results and gradients differ from those of the eager call that was captured, on the same
/// inputs and random numbers (the generators' states `before` the call); empty if by nothing but rounding.
std::string result_difference(const Program& program, const Capture& eager, const RandomState& before,
                              const std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& gradients);

}  // namespace graft
