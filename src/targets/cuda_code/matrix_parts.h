// Products of floats by the GPU's matrix units, as CUDA C++.
//
// The units multiply bfloat16 exactly and add in floats. A float is the sum of three bfloat16 (a half number
// of two, a bfloat16 of one), so that a product of floats is the sum of six products, the rest being less
// than a float's rounding. For a result in half precision two parts and three products are enough. Where that
// gives NaN or infinity, an element has to be computed again in floats: the parts of what is infinite are not
// numbers.
#pragma once
#include <string>

#include "ir/type.h"

namespace graft::cuda {

/// "constexpr int NAME = VALUE;"
std::string constant(const char* name, int64_t value);

/// What code for matrices of this dtype (`large`) begins with: types, the struct Plan (NarrowPlan,
/// narrow_products.h), reading and writing several numbers at once, how numbers are taken apart, and products
/// of what they are taken apart in.
std::string parts_beginning(ir::DType large, int warps);

/// A function with what stands before it (expressions.h: conversions()), and the instruction of the matrix
/// units (tests/cuda_text has another in its place).
std::string matrix_code(const std::string& function);

}  // namespace graft::cuda
