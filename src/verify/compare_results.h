// Whether compiled results are eager's, up to rounding: which judge is asked when.
#pragma once
#include <string>
#include <vector>

#include "verify/tolerance.h"
#include "compiler/program.h"

namespace graft {

/// How the program's results and gradients differ from eager's, `want`, one for each of the captured graph's
/// results: on the same inputs (of that graph) and random numbers (the generators' states `before` the call).
/// Empty if by nothing but rounding. Without results, gradients alone are compared.
std::string result_difference(const Program& program, std::vector<at::Tensor> inputs,
                              const RandomState& before, const std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& want);

}  // namespace graft
