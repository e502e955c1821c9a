// Products with a weight laid out as oneDNN or MKL like it best.
#pragma once
#include <atomic>
#include <memory>

#include "runtime/packed_product.h"

namespace graft::cpu {

/// For x [rows, in] times the transpose of a float weight [out, in]; null where no packed form is there or
/// none is faster than a plain product, which is measured once per shape.
std::unique_ptr<PackedProduct> pack_product(int64_t rows, int64_t in, int64_t out,
                                            const cache::Measuring& how = {});

/// For tests: products take functions in without measuring whether that is faster.
extern std::atomic<bool> join_always;

}  // namespace graft::cpu
