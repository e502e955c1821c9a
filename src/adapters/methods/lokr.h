// LoKr: W + scaling (W1 ⊗ W2), a Kronecker product whose factors may be of low rank themselves.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method lokr_method();

/// `size` as a product of two numbers: `factor` times the rest where it divides, else near the root and the
/// first at most `factor` (-1: any).
std::pair<int64_t, int64_t> factorization(int64_t size, int64_t factor);

}  // namespace graft::adapters
