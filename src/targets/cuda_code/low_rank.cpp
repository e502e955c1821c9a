#include "targets/cuda_code/low_rank.h"

#include "targets/cuda_code/matrix_parts.h"

namespace graft::cuda {
namespace {

std::string choices() {
  return constant("most_adapters", most_adapters) + R"(struct Adapters {
  const float *a[most_adapters], *b[most_adapters], *scaling[most_adapters];
  int slot[most_adapters], rank[most_adapters], first[most_adapters], begin[most_adapters], end[most_adapters];
  int count;
};
struct Choice {
  const bool* table;
  i64 steps[2];
  int each;
};
__device__ __forceinline__ bool has_chosen(const Choice& choice, int row_of_table, int slot) {
  return choice.table[row_of_table * choice.steps[0] + slot * choice.steps[1]];
}
/// Whether a row from `first` on, of `count`, has chosen it.
__device__ __forceinline__ bool any_has_chosen(const Choice& choice, i64 first, int count, i64 rows, int slot) {
  const i64 last = first + count < rows ? first + count - 1 : rows - 1;
  const int from = static_cast<int>(first) / choice.each, to = static_cast<int>(last) / choice.each;
  bool any = false;
  for (int row = from; row <= to; ++row) any = any || has_chosen(choice, row, slot);
  return any;
}
)";
}

}  // namespace

std::string lower_function(const NarrowKind& kind) {
  return dots_of_block(kind) + choices() + R"(extern "C" __global__ void )" + bounds_of_dots(kind) +
         R"( lower(float* t, const large* x, const __grid_constant__ Adapters all, Choice choice, Plan plan) {
  begin();
  const int blocks = gridDim.z / all.count, i = blockIdx.z / blocks, first = blockIdx.z % blocks * across;
  plan.narrow = all.rank[i];
  if (first >= plan.narrow || !any_has_chosen(choice, i64(blockIdx.y) * height, height, plan.rows, all.slot[i])) return;
  dots_of_block(t + all.first[i], x, all.a[i], plan, first, *all.scaling[i]);
}
)";
}

// Which adapters have work here is found out by a thread each: one after the other they would be waited for.
std::string lift_function(const NarrowKind& kind) {
  return spread_of_block(kind) + choices() + constant("columns_of_block", spread_columns) +
         R"(/// The plan for an adapter. B's first row is that of the adapter's first column.
__device__ __forceinline__ Plan plan_for(const Plan& plan, const Adapters& all, int i) {
  Plan own = plan;
  own.narrow = own.small[0] = all.rank[i];
  own.small[1] = 1;
  return own;
}
__device__ __forceinline__ const float* rows_of(const Adapters& all, int i) { return all.b[i] - i64(all.begin[i]) * all.rank[i]; }
__device__ __forceinline__ bool chosen_by(const Choice& choice, int row, int slot) { return has_chosen(choice, row / choice.each, slot); }
__device__ __noinline__ void lift_exactly(large* out, const large* y, const float* t, const Adapters& all, const Choice& choice, const Plan& plan, int row, int at) {
  write_exactly(out, y, plan, row, at, [&](int r, int c) {
    float total = 0;
    for (int i = 0; i < all.count; ++i)
      if (all.begin[i] <= c && c < all.end[i] && chosen_by(choice, r, all.slot[i]))
        total = add_exactly(total, t + all.first[i], rows_of(all, i), plan_for(plan, all, i), r, c);
    return total;
  });
}
extern "C" __global__ void __launch_bounds__(threads, 2) lift(large* out, const large* y, const float* t, const __grid_constant__ Adapters all, const __grid_constant__ Choice choice, const __grid_constant__ Plan plan) {
  __shared__ bool has_work[most_adapters];
  begin();
  const Patch mine = patch_of_lane(plan);
  const int column = blockIdx.y * columns_of_block, me = threadIdx.x;
  if (me < all.count) has_work[me] = all.begin[me] <= column && column < all.end[me] && any_has_chosen(choice, mine.row, height, plan.rows, all.slot[me]);
  __syncthreads();
  int works = 0, one = 0;
  for (int i = 0; i < all.count; ++i)
    if (has_work[i]) ++works, one = i;
  if (works == 0 && out == y) return;
  const auto redo = [&](int row) { lift_exactly(out, y, t, all, choice, plan, row, mine.at); };
  if (works == 1 && all.rank[one] <= 16) {
    add_short(mine, out, y, t + all.first[one], rows_of(all, one), plan_for(plan, all, one), [&](int row) { return chosen_by(choice, row, all.slot[one]); }, redo);
    return;
  }
  add_long(mine, out, y, plan, [&](const auto& add) {
#pragma unroll 1
    for (int i = 0; i < all.count; ++i)
      if (has_work[i]) add(t + all.first[i], rows_of(all, i), plan_for(plan, all, i), [&](int row) { return chosen_by(choice, row, all.slot[i]); });
  }, redo);
}
)";
}

}  // namespace graft::cuda
