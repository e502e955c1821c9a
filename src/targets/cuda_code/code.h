// A kernel as CUDA C++ for NVRTC, with no header: level "cuda" of `--emit`, which needs no GPU.
//
// Two forms. By threads: a thread takes a point of the kept dimensions and walks the reduced ones by itself,
// in their order; pointwise kernels, short rows, and what scatters. By blocks: a block takes a row, its
// threads walk it together, and what they reduced is joined in a tree, always in the same order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/fusion.h"
#include "codegen/kernel.h"

namespace graft::cuda {

struct Shape {
  int64_t blocks = 1;
  int threads = 256;
  int64_t blocks_y = 1, blocks_z = 1;
};

/// Those of one launch: one, or several that do not need each other, with as many threads a block.
using Kernels = std::vector<const codegen::Kernel*>;
/// The launches of a schedule, in its order.
std::vector<Kernels> launches_of(const codegen::Schedule& schedule);
/// Target::launch_kind().
int64_t launch_kind(const codegen::Kernel& kernel);

/// extern "C" function `kernel`: a pointer for each buffer, kernel after kernel, then `int* failed`, `int
/// mark` and `int unless_failed` (launcher.h). Error for what has no code yet.
std::string code_of(const Kernels& kernels);
/// The same for buffers that begin anywhere. code_of() may ask for multiples of 16 bytes.
std::string code_for_any_alignment(const Kernels& kernels);
/// Without what every kernel may use (expressions.h), which stands before it.
std::string function_of(const Kernels& kernels);
/// Whether it asks for multiples of 16 bytes; and what before it makes it ask for nothing.
bool asks_for_alignment(const std::string& function);
constexpr const char* any_alignment = "#define copy_aligned copy_many\n";
/// All launches of a schedule, each after its loops.
std::string code_of(const codegen::Schedule& schedule);
/// How they are launched.
Shape shape_of(const Kernels& kernels);

}  // namespace graft::cuda
