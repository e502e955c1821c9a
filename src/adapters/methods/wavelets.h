// Orthogonal wavelets by their names: Daubechies' (db1 to db10), symlets (sym2 to sym10), coiflets (coif1 to
// coif5).
#pragma once
#include <string_view>
#include <vector>

namespace graft::adapters {

/// All names that there are filters for.
const std::vector<std::string_view>& wavelet_names();

/// The low-pass filter of the synthesis, whose squares sum to one. The high-pass one is its reverse with
/// alternating signs, the first positive.
const std::vector<double>& wavelet_filter(std::string_view name);

}  // namespace graft::adapters
