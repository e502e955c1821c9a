// What is in a kernel's loops, as CUDA C++.
#pragma once
#include <string>
#include <vector>

#include "codegen/kernel.h"

namespace graft::cuda {

/// What every kernel may use, before it: types, half numbers, and how it begins and fails, which are a GPU's
/// own instructions (tests/cuda_text has others in their place), and what is plain C++ over them.
///
/// `failed` is memory of the GPU that has the mark, and after it the address of the host's copy (device.cpp).
/// A kernel lets the next one be launched at once, which then waits for it before it reads or writes.
const char* conversions();
const char* helpers();

/// Half numbers are floats in registers, and two bytes in memory.
const char* register_type(ir::DType dtype);
const char* memory_type(ir::DType dtype);

std::string number(double x, ir::DType dtype);

/// What a reduction begins with, and what it makes of two.
std::string identity(codegen::Op op, ir::DType dtype);
std::string combined(codegen::Op op, const std::string& a, const std::string& b);

/// A value in a register as it lies in memory, and the other way.
std::string in_memory(ir::DType held, ir::DType memory, const std::string& x);
std::string in_register(ir::DType memory, const std::string& x);

/// An instruction that neither loads nor stores nor reduces.
std::string computed(const codegen::Instruction& i, const std::vector<std::string>& a);

}  // namespace graft::cuda
