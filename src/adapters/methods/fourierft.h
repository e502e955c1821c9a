// FourierFT: what is added to a weight is the inverse Fourier transform of a few trained coefficients, at
// frequencies that a seed chooses.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method fourierft_method();

}  // namespace graft::adapters
