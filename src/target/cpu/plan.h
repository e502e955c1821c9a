// How a kernel runs on a CPU: which dimension is vectorised, and how the work is dealt out to threads.
#pragma once
#include "codegen/kernel.h"
#include "target/cpu/jit.h"

namespace graft::cpu {

struct Plan {
  /// The dimension whose neighbours share a vector; -1: none, the kernel has one point per task.
  int vector_dim = -1;
  int width = 1;       ///< lanes
  int64_t block = 1;   ///< of a kept vector dimension: elements per task, a multiple of the width
  int64_t blocks = 1;  ///< tasks along it
  int64_t tasks = 1;   ///< in all: kept dimensions other than the vector's, times blocks
  int64_t work = 1;    ///< instructions times points, per task: to decide how many tasks a thread gets
  bool rows = false;   ///< the vector dimension is a reduced one
};

Plan plan(const codegen::Kernel& kernel, const Host& host);

}  // namespace graft::cpu
