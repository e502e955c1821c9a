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
  return dots_of_block(kind) + choices() +
         R"(extern "C" __global__ void __launch_bounds__(threads, 1) lower(float* t, const large* x, const __grid_constant__ Adapters all, Choice choice, Plan plan) {
  begin();
  const int i = blockIdx.z;
  plan.narrow = all.rank[i];
  if (blockIdx.y * across >= plan.narrow || !any_has_chosen(choice, i64(blockIdx.x) * 16, 16, plan.rows, all.slot[i])) return;
  dots_of_block(t + all.first[i], x, all.a[i], plan, *all.scaling[i]);
}
)";
}

std::string lift_function(const NarrowKind& kind) {
  return spread_of_block(kind) + choices() + constant("columns_of_block", spread_columns) +
         R"(extern "C" __global__ void __launch_bounds__(threads, 2) lift(large* out, const large* y, const float* t, const __grid_constant__ Adapters all, Choice choice, Plan plan) {
  begin();
  plan.small[1] = 1;
  Columns mine = columns_of_lane(plan);
  const auto take = [&](int i) { plan.narrow = plan.small[0] = all.rank[i]; };
  // B's first row is that of the adapter's first column.
  const auto rows_of = [&](int i) { return all.b[i] - i64(all.begin[i]) * all.rank[i]; };
  const int column = static_cast<int>(blockIdx.y) * columns_of_block;
  const auto is_here = [&](int i) { return all.begin[i] <= column && column < all.end[i]; };
  const auto chosen_by = [&](i64 row, int i) { return has_chosen(choice, static_cast<int>(row) / choice.each, all.slot[i]); };
  over_bands(mine, y, plan, [&](Band& band, i64 row) {
    bool any = false;
    for (int i = 0; i < all.count; ++i) {
      if (!is_here(i) || !any_has_chosen(choice, row, height, plan.rows, all.slot[i])) continue;
      any = true;
      take(i);
      add_product(band, mine, row, t + all.first[i], rows_of(i), plan, [&](i64 r) { return chosen_by(r, i); });
    }
    if (!any && out == y) return;
    write_band(band, mine, row, out, y, plan, [&](i64 r, i64 c) {
      float total = 0;
      for (int i = 0; i < all.count; ++i) {
        if (!is_here(i) || !chosen_by(r, i)) continue;
        take(i);
        total = add_exactly(total, t + all.first[i], rows_of(i), plan, r, c);
      }
      return total;
    });
  });
}
)";
}

}  // namespace graft::cuda
