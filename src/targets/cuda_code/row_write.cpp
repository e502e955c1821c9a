#include "targets/cuda_code/row_write.h"

#include <stdexcept>

#include "targets/cuda_code/expressions.h"

namespace graft::cuda {
namespace {

const char* element_of(int64_t bytes) {
  switch (bytes) {
    case 1:
      return "unsigned char";
    case 2:
      return "u16";
    case 4:
      return "unsigned";
    case 8:
      return "i64";
    case 16:
      return "uint4";
    default:
      throw std::logic_error("elements of " + std::to_string(bytes) + " bytes");
  }
}

}  // namespace

// Every block looks at all indices: they are few, and no block has to wait for another. What a thread reads
// before it writes does not wait for that look: the first element is on its way together with the indices.
std::string row_write_function(int64_t bytes) {
  return std::string("typedef ") + element_of(bytes) +
         " element;\nconstexpr int most_writes = " + std::to_string(most_row_writes) + ";\n" +
         R"(struct Plan {
  i64 to[6], from[6], places[6], rows, indices, index_step, row_step;
  unsigned sizes[6], elements;
  int dims;
};
struct Writes {
  element* to[most_writes];
  const element* from[most_writes];
  Plan plans[most_writes];
};
struct Row { element value; i64 there, index; };
__device__ __forceinline__ Row row_of(const element* from, const i64* index, const Plan& plan, unsigned i) {
  unsigned rest = i;
  i64 there = 0, here = 0, which = 0;
  for (int d = 0; d < plan.dims; ++d) {
    const unsigned at = rest % plan.sizes[d];
    rest /= plan.sizes[d];
    there += at * plan.to[d];
    here += at * plan.from[d];
    which += at * plan.places[d];
  }
  return {from[here], there, index[which]};
}
extern "C" __global__ void __launch_bounds__(128) write_rows(const __grid_constant__ Writes all, const i64* index, int* failed, int mark) {
  begin();
  const Plan& plan = all.plans[blockIdx.y];
  element* to = all.to[blockIdx.y];
  const element* from = all.from[blockIdx.y];
  const bool stopped = *failed != 0;
  unsigned i = blockIdx.x * 128 + threadIdx.x;
  Row row{};
  if (i < plan.elements) row = row_of(from, index, plan, i);
  bool wrong = false;
  for (i64 k = threadIdx.x; k < plan.indices; k += 128) {
    const i64 at = index[k * plan.index_step];
    wrong = wrong || at < 0 || at >= plan.rows;
  }
  if (__syncthreads_or(wrong)) {
    if (threadIdx.x == 0) fail(failed, mark);
    return;
  }
  if (stopped) return;
  while (i < plan.elements) {
    to[row.there + row.index * plan.row_step] = row.value;
    i += gridDim.x * 128;
    if (i < plan.elements) row = row_of(from, index, plan, i);
  }
}
)";
}

std::string row_write_code(int64_t bytes) { return conversions() + row_write_function(bytes); }

}  // namespace graft::cuda
