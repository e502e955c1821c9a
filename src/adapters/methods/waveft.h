// WaveFT (Bilican et al. 2025): a weight that is added, as a sparse matrix of wavelet coefficients.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method waveft_method();

}  // namespace graft::adapters
