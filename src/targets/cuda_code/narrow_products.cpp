#include "targets/cuda_code/narrow_products.h"

#include "targets/cuda_code/matrix_parts.h"

namespace graft::cuda {
namespace {

constexpr int kSumsWarps = 16, kSpreadWarps = spread_columns / 32, kBandRows = 32;

/// Sums of more columns take more room.
int dots_warps(const NarrowKind& kind) { return kind.columns > 32 ? 8 : 16; }

std::string beginning(const NarrowKind& kind, int warps) {
  return parts_beginning(kind.large, warps) + constant("along", kind.small == Along::large    ? 0
                                                                : kind.small == Along::narrow ? 1
                                                                                              : 2);
}

}  // namespace

NarrowShape dots_shape(const NarrowKind& kind) { return {32 * dots_warps(kind), 16, 0, kind.columns}; }
NarrowShape sums_shape(const NarrowKind& kind) { return {32 * kSumsWarps, 0, kind.columns, 16}; }
NarrowShape spread_shape(const NarrowKind& kind) {
  return {32 * kSpreadWarps, kBandRows * kind.bands, spread_columns, 0};
}

// In a tile [16, 16] x [16, 8] a lane (g = lane / 4, t = lane % 4) has the elements 2t, 2t + 1, 2t + 8, 2t +
// 9 of rows g and g + 8 of the one and of column g of the other, and columns 2t, 2t + 1 of rows g and g + 8
// of the sums. Which columns of x these elements are is free, as long as it is the same in w: a lane reads
// eight neighbours for two tiles. Warps have other columns of x; their sums are added in a fixed order.
std::string dots_of_block(const NarrowKind& kind) {
  return beginning(kind, dots_warps(kind)) + constant("across", kind.columns) +
         R"(constexpr int tiles = across / 8, steps = across > 16 ? 2 : 4;  // so many loads are on their way at a time
/// Eight elements of a column of w.
__device__ __forceinline__ void column_at(const float* from, i64 step, bool there, float* to) {
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = 0;
  if (!there) return;
  if constexpr (along == 0) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const Four four = *reinterpret_cast<const Four*>(from + i);
#pragma unroll
      for (int e = 0; e < 4; ++e) to[i + e] = four.each[e];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = from[i * step];
  }
}
__device__ __forceinline__ void dots_of_block(float* out, const large* x, const float* w, const Plan& plan, float scale) {
  __shared__ float left[warps][16 * across];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const i64 row = i64(blockIdx.x) * 16;
  const int first = blockIdx.y * across, columns = static_cast<int>(plan.columns), narrow = static_cast<int>(plan.narrow);
  const i64 w_step = along == 0 ? 1 : plan.small[0];
  const large* rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const i64 mine = row + g + 8 * r;
    rows[r] = x + (mine < plan.rows ? mine : plan.rows - 1) * plan.step;
  }
  const float* of_w[tiles];
#pragma unroll
  for (int n = 0; n < tiles; ++n) of_w[n] = w + (first + n * 8 + g) * plan.small[1];
  float sum[tiles][4];
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] = 0;
  for (int from = warp * 32 + t * 8; from - t * 8 < columns; from += steps * threads) {
    Eight numbers[steps][2];
    float few[steps][tiles][8];
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const int at = from + s * threads;
      const bool there = at < columns;
#pragma unroll
      for (int r = 0; r < 2; ++r) numbers[s][r] = read<Eight>(rows[r] + at, there);
#pragma unroll
      for (int n = 0; n < tiles; ++n) column_at(of_w[n] + at * w_step, w_step, there && first + n * 8 + g < narrow, few[s][n]);
    }
#pragma unroll
    for (int s = 0; s < steps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned a[4][3];
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const large* two = &numbers[s][r].each[half * 4 + i * 2];
            take_apart_large(two[0], two[1], a[i * 2 + r]);
          }
#pragma unroll
        for (int n = 0; n < tiles; ++n) {
          unsigned b[2][3];
#pragma unroll
          for (int i = 0; i < 2; ++i) take_apart<3>(few[s][n][half * 4 + i * 2], few[s][n][half * 4 + i * 2 + 1], b[i]);
          multiply_parts<parts, 3>(sum[n], a, b);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) left[warp][(g + i / 2 * 8) * across + n * 8 + t * 2 + i % 2] = sum[n][i];
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < 16 * across; i += threads) {
    const i64 r = row + i / across;
    const int c = first + i % across;
    if (r >= plan.rows || c >= narrow) continue;
    float total = 0;
#pragma unroll
    for (int other = 0; other < warps; ++other) total += left[other][i];
    if (!is_finite(total)) {
      total = 0;
      for (i64 k = 0; k < plan.columns; ++k) total = fmaf(number_of(x[r * plan.step + k]), w[k * plan.small[0] + c * plan.small[1]], total);
    }
    out[r * plan.other[0] + c * plan.other[1]] = total * scale;
  }
}
)";
}

std::string dots_function(const NarrowKind& kind) {
  return dots_of_block(kind) +
         R"(extern "C" __global__ void __launch_bounds__(threads, 1) dots(float* out, const large* x, const float* w, Plan plan) {
  begin();
  dots_of_block(out, x, w, plan, 1.0f);
}
)";
}

// Tiles of the transpose of t with those of x: a lane reads neighbouring columns of four rows, each of which
// is column g of another tile. Warps have other rows.
std::string sums_function(const NarrowKind& kind) {
  return beginning(kind, kSumsWarps) + constant("width", kind.columns) +
         R"(constexpr int tiles = width / 8, at_once = 2, stride = 16 * warps;
typedef Many<large, tiles> Neighbours;
extern "C" __global__ void __launch_bounds__(threads, 1) sums(float* out, const large* x, const float* t, Plan plan) {
  __shared__ float left[warps][16 * 8 * at_once];
  begin();
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, lane_t = threadIdx.x % 4;
  const i64 start = i64(blockIdx.x) * width;
  const int first = blockIdx.y * 16, rows = static_cast<int>(plan.rows), narrow = static_cast<int>(plan.narrow);
  const bool has_columns = start + g * tiles < plan.columns;
  float sum[tiles][4];
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] = 0;
  Neighbours next[4];
  float few[2][4];  // of columns g and g + 8 of t
  const large* from_x = x + i64(warp * 16 + lane_t * 2) * plan.step + start + g * tiles;
  const float* from_t = t + i64(warp * 16 + lane_t * 2) * plan.small[0] + (first + g) * plan.small[1];
  const auto fetch = [&](int row) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int ahead = i % 2 + i / 2 * 8;
      const bool there = row + lane_t * 2 + ahead < rows;
      next[i] = read<Neighbours>(from_x + ahead * plan.step, there && has_columns);
#pragma unroll
      for (int c = 0; c < 2; ++c) few[c][i] = there && first + g + c * 8 < narrow ? from_t[ahead * plan.small[0] + c * 8 * plan.small[1]] : 0.0f;
    }
    from_x += stride * plan.step;
    from_t += stride * plan.small[0];
  };
  fetch(warp * 16);
  for (int row = warp * 16; row < rows; row += stride) {
    unsigned a[4][3];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int c = 0; c < 2; ++c) take_apart<3>(few[c][i * 2], few[c][i * 2 + 1], a[i * 2 + c]);
    Neighbours mine[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[i] = next[i];
    fetch(row + stride);
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      unsigned b[2][3];
#pragma unroll
      for (int i = 0; i < 2; ++i) take_apart_large(mine[i * 2].each[n], mine[i * 2 + 1].each[n], b[i]);
      multiply_parts<3, parts>(sum[n], a, b);
    }
  }
#pragma unroll
  for (int n = 0; n < tiles; n += at_once) {
    if (n > 0) __syncthreads();
#pragma unroll
    for (int e = 0; e < at_once; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) left[warp][((g + i / 2 * 8) * 8 + lane_t * 2 + i % 2) * at_once + e] = sum[n + e][i];
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < 16 * 8 * at_once; i += threads) {
      const i64 column = start + i / at_once % 8 * tiles + n + i % at_once;
      const int which = first + i / (8 * at_once);
      if (column >= plan.columns || which >= narrow) continue;
      float total = 0;
#pragma unroll
      for (int other = 0; other < warps; ++other) total += left[other][i];
      if (!is_finite(total)) {
        total = 0;
#pragma unroll 1
        for (i64 r = 0; r < plan.rows; ++r) total = fmaf(number_of(x[r * plan.step + column]), t[r * plan.small[0] + which * plan.small[1]], total);
      }
      out[column * plan.other[0] + which * plan.other[1]] = total;
    }
  }
}
)";
}

// A warp has 32 columns: four tiles, of which a lane has eight neighbouring columns of each row. A block
// takes some bands of 32 rows one after the other: what a lane has of b is read and taken apart once for all
// of them, if it is all that b has for them, and what is added to the next is on its way. t is taken apart
// once for all warps, and lies in shared memory as lanes read it.
std::string spread_of_block(const NarrowKind& kind) {
  return beginning(kind, kSpreadWarps) + constant("bands", kind.bands) +
         R"(constexpr int tiles = 4, height = 32;
typedef Many<unsigned, 4> Words;
/// What a lane has of the columns.
struct Columns {
  i64 start, at;  // of the warp's, of its own
  bool there;
  const float* b = nullptr;  // of which it has some rows
  int first = 0;             // from this one on
  unsigned right[tiles][2][3];
};
/// What a lane has of a band: rows g, g + 8 and so on.
struct Band {
  Eight more[4];  // what is added
  float sum[2][tiles][4];
};
__device__ __forceinline__ Columns columns_of_lane(const Plan& plan) {
  Columns mine;
  mine.start = (i64(blockIdx.y) * warps + threadIdx.x / 32) * 32;
  mine.at = mine.start + threadIdx.x % 4 * 8;
  mine.there = mine.at < plan.columns;
  return mine;
}
__device__ __forceinline__ void take_apart_columns(Columns& mine, const float* b, int first, const Plan& plan) {
  if (mine.b == b && mine.first == first) return;
  mine.b = b;
  mine.first = first;
  const int lane = threadIdx.x % 32, g = lane / 4, narrow = static_cast<int>(plan.narrow);
  const i64 column = mine.start + g / 2 * 8 + g % 2;  // and every other one
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int which = first + lane % 4 * 2 + i * 8;
      const bool there = column + n * 2 < plan.columns && which < narrow;
      const float* from = b + (column + n * 2) * plan.small[0] + which * plan.small[1];
      Two two{};
      if constexpr (along == 1) {
        if (there) two = *reinterpret_cast<const Two*>(from);
      } else if (there) {
        two.each[0] = from[0];
        if (which + 1 < narrow) two.each[1] = from[plan.small[1]];
      }
      take_apart<3>(two.each[0], two.each[1], mine.right[n][i]);
    }
}
/// The product of t with b, of the rows of t that count.
template <class Counts> __device__ __forceinline__ void add_product(Band& band, Columns& mine, i64 row, const float* t, const float* b, const Plan& plan, const Counts& counts) {
  __shared__ Words rows_of_t[2][3][32];
  const int narrow = static_cast<int>(plan.narrow);
  for (int first = 0; first < narrow; first += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += threads) {
      const int of = i % 128 / 4, which = first + of % 4 * 2 + i % 4 / 2 * 8;
      const i64 r = row + i / 128 * 16 + of / 4 + i % 2 * 8;
      const bool there = r < plan.rows && counts(r);
      const float* from = t + r * plan.other[0] + which * plan.other[1];
      unsigned words[3];
      take_apart<3>(there && which < narrow ? from[0] : 0.0f, there && which + 1 < narrow ? from[plan.other[1]] : 0.0f, words);
#pragma unroll
      for (int p = 0; p < 3; ++p) rows_of_t[i / 128][p][of].each[i % 4] = words[p];
    }
    take_apart_columns(mine, b, first, plan);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      unsigned a[4][3];
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        const Words words = rows_of_t[m][p][threadIdx.x % 32];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i][p] = words.each[i];
      }
#pragma unroll
      for (int n = 0; n < tiles; ++n) multiply_parts<3, 3>(band.sum[m][n], a, mine.right[n]);
    }
  }
}
/// `exactly(row, column)` computes the sum of an element in floats.
template <class Exactly> __device__ __forceinline__ void write_band(const Band& band, const Columns& mine, i64 row, large* out, const large* added, const Plan& plan, const Exactly& exactly) {
  if (!mine.there) return;
  const i64 first = row + threadIdx.x % 32 / 4;
  float none = 0;  // NaN where one of the sums is not finite
#pragma unroll
  for (int i = 0; i < tiles * 8; ++i) none = fmaf(band.sum[i / (tiles * 4)][i / 4 % tiles][i % 4], 0.0f, none);
  if (none == 0) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float total[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        total[i] = band.sum[m / 2][i / 2][m % 2 * 2 + i % 2];
        if (added) total[i] = number_of(band.more[m].each[i]) + total[i];
      }
      if (first + m * 8 < plan.rows) write_eight(out + (first + m * 8) * plan.step + mine.at, total);
    }
    return;
  }
  // Each element is read before it is written: what is added may be where the result goes.
#pragma unroll 1
  for (i64 here = first; here < plan.rows && here < row + height; here += 8)
#pragma unroll 1
    for (i64 each = mine.at; each < mine.at + 8; ++each) {
      const float total = exactly(here, each);
      out[here * plan.step + each] = stored(added ? number_of(added[here * plan.added + each]) + total : total);
    }
}
/// total + the product of a row of t with a column of b, in floats.
__device__ __forceinline__ float add_exactly(float total, const float* t, const float* b, const Plan& plan, i64 row, i64 column) {
#pragma unroll 1
  for (i64 c = 0; c < plan.narrow; ++c) total = fmaf(t[row * plan.other[0] + c * plan.other[1]], b[column * plan.small[0] + c * plan.small[1]], total);
  return total;
}
/// `each(band, row)` for the bands of the block, with what is added in them.
template <class Each> __device__ __forceinline__ void over_bands(const Columns& mine, const large* added, const Plan& plan, const Each& each) {
#pragma unroll 1
  for (int i = 0; i < bands; ++i) {
    const i64 row = (i64(blockIdx.x) * bands + i) * height, first = row + threadIdx.x % 32 / 4;
    if (row >= plan.rows) return;
    Band band;
#pragma unroll
    for (int m = 0; m < 4; ++m) band.more[m] = read<Eight>(added + (first + m * 8) * plan.added + mine.at, added && mine.there && first + m * 8 < plan.rows);
#pragma unroll
    for (int n = 0; n < tiles * 8; ++n) band.sum[n / (tiles * 4)][n / 4 % tiles][n % 4] = 0;
    each(band, row);
  }
}
)";
}

std::string spread_function(const NarrowKind& kind) {
  return spread_of_block(kind) +
         R"(extern "C" __global__ void __launch_bounds__(threads, 2) spread(large* out, const large* added, const float* t, const float* b, Plan plan) {
  begin();
  Columns mine = columns_of_lane(plan);
  over_bands(mine, added, plan, [&](Band& band, i64 row) {
    add_product(band, mine, row, t, b, plan, [](i64) { return true; });
    write_band(band, mine, row, out, added, plan, [&](i64 r, i64 c) { return add_exactly(0, t, b, plan, r, c); });
  });
}
)";
}

}  // namespace graft::cuda
