// Whether compiled results are eager's, up to rounding: which judge is asked when.
#pragma once
#include <string>
#include <vector>

#include "capture/capture.h"
#include "verify/generator_states.h"

namespace graft::verify {

/// How a program's results and gradients differ from eager's, `want`, one for each of the captured graph's
/// results: on the same inputs (of that graph) and random numbers (the generators' states `before` the call).
/// Empty if by nothing but rounding; else a clause that names the first that differs. Without results,
/// gradients alone are compared.
///
/// The judges, in order; what one accepts the next is not asked about:
///   tolerance         the two tensors alone
///   derived_results   each side's value is what the graph makes of that side's other results
///   cancelling_sums   the difference is small beside the terms of the sum that the value is
///   rounding_noise    the difference is small beside what rounding does in runs in double precision
std::string result_difference(const CapturedFunction& captured, std::vector<at::Tensor> inputs,
                              const GeneratorStates& before, const std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& want);

}  // namespace graft::verify
