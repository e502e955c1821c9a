#include "targets/cuda_code/narrow_products.h"

#include "targets/cuda_code/matrix_parts.h"

namespace graft::cuda {
namespace {

constexpr int kDotsWarps = 16, kSumsWarps = 16, kSpreadWarps = spread_columns / 32, kSpreadRows = 64;

std::string beginning(const NarrowKind& kind, int warps) {
  return parts_beginning(kind.large, warps) + constant("along", kind.small == Along::large    ? 0
                                                                : kind.small == Along::narrow ? 1
                                                                                              : 2);
}

/// For kernels whose blocks come in clusters along x. After left[of a warp][i] is written, `total(i)` gives
/// the sum for an element to one thread of the cluster, in the same order each time.
std::string joining() {
  return R"(template <int count, class Total> __device__ __forceinline__ void join(float (*left)[count], const Total& total) {
  __syncthreads();
  static_assert(count % slices == 0);
#pragma unroll
  for (int i = threadIdx.x; i < count; i += threads) {
    float sum = left[0][i];
#pragma unroll
    for (int other = 1; other < warps; ++other) sum += left[other][i];
    if constexpr (slices == 1) total(i, sum);
    else left[0][i] = sum;
  }
  if constexpr (slices > 1) {
    publish(left[0], count);
    constexpr int own = count / slices;
#pragma unroll
    for (int i = blockIdx.x * own + threadIdx.x; i < (static_cast<int>(blockIdx.x) + 1) * own; i += threads) {
      float each[slices], sum = 0;
#pragma unroll
      for (int other = 0; other < slices; ++other) each[other] = published(&left[0][i], other);
#pragma unroll
      for (int other = 0; other < slices; ++other) sum += each[other];
      total(i, sum);
    }
    leave_cluster();
  }
}
)";
}

}  // namespace

std::string bounds_of_dots(const NarrowKind& kind) {
  return std::string(kind.slices > 1 ? "__cluster_dims__(slices, 1, 1) " : "") +
         "__launch_bounds__(threads, 1)";
}

NarrowShape dots_shape(const NarrowKind& kind) { return {32 * kDotsWarps, kind.rows, 0, kind.columns}; }
NarrowShape sums_shape(const NarrowKind& kind) { return {32 * kSumsWarps, 0, kind.columns, 16}; }
NarrowShape spread_shape() { return {32 * kSpreadWarps, kSpreadRows, spread_columns, 0}; }

// Nearly as many blocks as processors are enough: more slices have to be joined, and the fewer rows a block
// has, the more often w is read.
void divide_dots(NarrowKind& kind, int64_t rows, int64_t columns, int64_t products, const Division& among) {
  const auto enough = among.processors * 9 / 10;
  const auto blocks = [&] { return (rows + kind.rows - 1) / kind.rows * products * kind.slices; };
  if (kind.columns == 16) kind.rows = 32;
  if (blocks() * (products > 1 ? 1 : 2) < enough) kind.rows = 16;
  constexpr int64_t least_columns = 2 * kDotsWarps * 32;
  while (kind.slices < among.most_slices && blocks() < enough && kind.slices * least_columns < columns)
    kind.slices *= 2;
}

// In a tile [16, 16] x [16, 8] a lane (g = lane / 4, t = lane % 4) has the elements 2t, 2t + 1, 2t + 8, 2t +
// 9 of rows g and g + 8 of the one and of column g of the other, and columns 2t, 2t + 1 of rows g and g + 8
// of the sums. Which columns of x these elements are is free, as long as it is the same in w: a lane reads
// eight neighbours for two tiles. Warps have other columns of x, and so have the blocks of a cluster.
std::string dots_of_block(const NarrowKind& kind) {
  return beginning(kind, kDotsWarps) + constant("slices", kind.slices) + joining() +
         constant("across", kind.columns) + constant("height", kind.rows) +
         R"(constexpr int tiles = across / 8, bands = height / 16, step = 32 * warps * slices;
constexpr int at_once = across > 32 ? 1 : across == 16 && bands == 1 && (along == 0 || parts == 1) ? 4 : 2;  // steps whose loads are on their way
/// Eight elements of a column of w.
__device__ __forceinline__ void column_at(const float* from, i64 w_step, bool there, float* to) {
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
    for (int i = 0; i < 8; ++i) to[i] = from[i * w_step];
  }
}
__device__ __forceinline__ void dots_of_block(float* out, const large* x, const float* w, const Plan& plan, int first, float scale) {
  __shared__ float left[warps][height * across];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const i64 row = i64(blockIdx.y) * height;
  const int columns = static_cast<int>(plan.columns), narrow = static_cast<int>(plan.narrow);
  const i64 w_step = along == 0 ? 1 : plan.small[0];
  const large* of_x = x + (row + g) * plan.step;
  const float* of_w[tiles];
#pragma unroll
  for (int n = 0; n < tiles; ++n) of_w[n] = w + (first + n * 8 + g) * plan.small[1];
  float sum[bands][tiles][4];
#pragma unroll
  for (int i = 0; i < bands * tiles * 4; ++i) sum[i / (tiles * 4)][i / 4 % tiles][i % 4] = 0;
#pragma unroll 1
  for (int from = (blockIdx.x * warps + warp) * 32 + t * 8; from - t * 8 < columns; from += at_once * step) {
    Eight numbers[at_once][bands][2];
    float few[at_once][tiles][8];
#pragma unroll
    for (int s = 0; s < at_once; ++s) {
      const int at = from + s * step;
      const bool there = at < columns;
#pragma unroll
      for (int m = 0; m < bands; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) numbers[s][m][r] = read<Eight>(of_x + (m * 16 + r * 8) * plan.step + at, there && row + g + m * 16 + r * 8 < plan.rows);
#pragma unroll
      for (int n = 0; n < tiles; ++n) column_at(of_w[n] + at * w_step, w_step, there && first + n * 8 + g < narrow, few[s][n]);
    }
#pragma unroll
    for (int i = 0; i < at_once * 2; ++i) {
      const int s = i / 2, half = i % 2;
      unsigned b[tiles][2][3];
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) take_apart<3>(few[s][n][half * 4 + e * 2], few[s][n][half * 4 + e * 2 + 1], b[n][e]);
#pragma unroll
      for (int m = 0; m < bands; ++m) {
        unsigned a[4][3];
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const large* two = &numbers[s][m][r].each[half * 4 + e * 2];
            take_apart_large(two[0], two[1], a[e * 2 + r]);
          }
#pragma unroll
        for (int n = 0; n < tiles; ++n) multiply_parts<parts, 3>(sum[m][n], a, b[n]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < bands; ++m)
#pragma unroll
    for (int n = 0; n < tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) left[warp][(m * 16 + g + i / 2 * 8) * across + n * 8 + t * 2 + i % 2] = sum[m][n][i];
  join(left, [&](int i, float total) {
    const i64 r = row + i / across;
    const int c = first + i % across;
    if (r >= plan.rows || c >= narrow) return;
    if (!is_finite(total)) {
      total = 0;
#pragma unroll 1
      for (i64 k = 0; k < plan.columns; ++k) total = fmaf(number_of(x[r * plan.step + k]), w[k * plan.small[0] + c * plan.small[1]], total);
    }
    out[r * plan.other[0] + c * plan.other[1]] = total * scale;
  });
}
)";
}

std::string dots_function(const NarrowKind& kind) {
  return dots_of_block(kind) + R"(extern "C" __global__ void )" + bounds_of_dots(kind) +
         R"( dots(float* out, const large* x, const float* w, Plan plan) {
  begin();
  dots_of_block(out, x, w, plan, blockIdx.z * across, 1.0f);
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

// A warp has 32 columns: four tiles, of which a lane has eight neighbouring columns of each row. t is taken
// apart once for all warps, and lies in shared memory as lanes read it. A short side of 16, of which a lane
// has all that it needs of b at once, goes tile by tile; for a longer one a lane has the sums of some rows. A
// result in half precision takes two parts of a number: what is left is less than its rounding.
std::string spread_of_block(const NarrowKind& kind) {
  return beginning(kind, kSpreadWarps) + constant("fine", kind.large == ir::DType::f32 ? 3 : 2) +
         constant("height", kSpreadRows) +
         R"(constexpr int tiles = 4, bands = height / 16, bands_of_sums = 2;
typedef Many<unsigned, 4> Words;
/// What a lane has of a block: eight columns of rows g, g + 8 and so on.
struct Patch {
  int row, start, at;  // the block's first row, the warp's first column, its own
  bool there;
};
__device__ __forceinline__ Patch patch_of_lane(const Plan& plan) {
  Patch mine;
  mine.row = blockIdx.x * height;
  mine.start = (blockIdx.y * warps + threadIdx.x / 32) * 32;
  mine.at = mine.start + threadIdx.x % 4 * 8;
  mine.there = mine.at < static_cast<int>(plan.columns);
  return mine;
}
/// What is added in `count` bands of 16 rows.
template <int count> __device__ __forceinline__ void read_added(Eight (*more)[2], const Patch& mine, int band, const large* added, const Plan& plan) {
  const int first = mine.row + band * 16 + threadIdx.x % 32 / 4;
  const large* from = added + first * plan.added + mine.at;
#pragma unroll
  for (int m = 0; m < count * 2; ++m) more[m / 2][m % 2] = read<Eight>(from + m * 8 * plan.added, added && mine.there && first + m * 8 < static_cast<int>(plan.rows));
}
/// Of `count` bands of t, of the rows that count.
template <int count, class Counts> __device__ __forceinline__ void take_apart_rows(Words (*rows_of_t)[fine][32], int row, const float* t, int first, const Plan& plan, const Counts& counts) {
  const int narrow = static_cast<int>(plan.narrow);
  static_assert(count * 128 % threads == 0);
#pragma unroll
  for (int n = 0; n < count * 128 / threads; ++n) {
    const int i = n * threads + threadIdx.x, of = i % 128 / 4, which = first + of % 4 * 2 + i % 4 / 2 * 8;
    const int r = row + i / 128 * 16 + of / 4 + i % 2 * 8;
    const bool there = r < static_cast<int>(plan.rows) && counts(r);
    const float* from = t + r * plan.other[0] + which * plan.other[1];
    unsigned words[3];
    take_apart<fine>(there && which < narrow ? from[0] : 0.0f, there && which + 1 < narrow ? from[plan.other[1]] : 0.0f, words);
#pragma unroll
    for (int p = 0; p < fine; ++p) rows_of_t[i / 128][p][of].each[i % 4] = words[p];
  }
}
__device__ __forceinline__ void take_apart_columns(unsigned (*right)[2][3], const Patch& mine, const float* b, int first, const Plan& plan) {
  const int lane = threadIdx.x % 32, narrow = static_cast<int>(plan.narrow);
  const int column = mine.start + lane / 8 * 8 + lane / 4 % 2;  // and every other one
  const int left_of_b = static_cast<int>(plan.columns) - column;
  const float* of_b = b + column * plan.small[0] + (first + lane % 4 * 2) * plan.small[1];
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int which = first + lane % 4 * 2 + i * 8;
      const bool there = n * 2 < left_of_b && which < narrow;
      const float* from = of_b + n * 2 * plan.small[0] + i * 8 * plan.small[1];
      Two two{};
      if constexpr (along == 1) {
        if (there) two = *reinterpret_cast<const Two*>(from);
      } else if (there) {
        two.each[0] = from[0];
        if (which + 1 < narrow) two.each[1] = from[plan.small[1]];
      }
      take_apart<fine>(two.each[0], two.each[1], right[n][i]);
    }
}
__device__ __forceinline__ void multiply_band(float (*sum)[4], const Words (*of_t)[32], const unsigned (*right)[2][3]) {
  unsigned a[4][3];
#pragma unroll
  for (int p = 0; p < fine; ++p) {
    const Words words = of_t[p][threadIdx.x % 32];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i][p] = words.each[i];
  }
#pragma unroll
  for (int n = 0; n < tiles; ++n) multiply_parts<fine, fine>(sum[n], a, right[n]);
}
/// Whether it is done: not where a sum of the lane is not finite.
__device__ __forceinline__ bool write_band(const float (*sum)[4], const Eight* more, const Patch& mine, int band, large* out, bool adds, const Plan& plan) {
  float none = 0;  // NaN where one of the sums is not finite
#pragma unroll
  for (int i = 0; i < tiles * 4; ++i) none = fmaf(sum[i / 4][i % 4], 0.0f, none);
  if (none != 0) return false;
  const int first = mine.row + band * 16 + threadIdx.x % 32 / 4;
  large* to = out + first * plan.step + mine.at;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float total[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      total[i] = sum[i / 2][m * 2 + i % 2];
      if (adds) total[i] = number_of(more[m].each[i]) + total[i];
    }
    if (first + m * 8 < static_cast<int>(plan.rows)) write_eight(to + m * 8 * plan.step, total);
  }
  return true;
}
/// What a lane writes of a band, `exactly(row, column)` for the sum of an element in floats. Each element is read before it is written:
/// what is added may be where the result goes.
template <class Exactly> __device__ __forceinline__ void write_exactly(large* out, const large* added, const Plan& plan, int row, int at, const Exactly& exactly) {
#pragma unroll 1
  for (int here = row + threadIdx.x % 32 / 4; here < static_cast<int>(plan.rows) && here < row + 16; here += 8)
#pragma unroll 1
    for (int each = at; each < at + 8; ++each) {
      const float total = exactly(here, each);
      out[here * plan.step + each] = stored(added ? number_of(added[here * plan.added + each]) + total : total);
    }
}
/// The product of t with b where the short side is 16 at most. `redo(row)` writes a band exactly.
template <class Counts, class Redo> __device__ __forceinline__ void add_short(const Patch& mine, large* out, const large* added, const float* t, const float* b, const Plan& plan, const Counts& counts, const Redo& redo) {
  __shared__ Words rows_of_t[bands][fine][32];
  Eight more[bands][2];
  read_added<bands>(more, mine, 0, added, plan);
  take_apart_rows<bands>(rows_of_t, mine.row, t, 0, plan, counts);
  unsigned right[tiles][2][3];
  take_apart_columns(right, mine, b, 0, plan);
  __syncthreads();
  unsigned not_done = 0;  // the warp's lanes have to stay together for its products
#pragma unroll
  for (int m = 0; m < bands; ++m) {
    float sum[tiles][4];
#pragma unroll
    for (int i = 0; i < tiles * 4; ++i) sum[i / 4][i % 4] = 0;
    multiply_band(sum, rows_of_t[m], right);
    if (mine.there && !write_band(sum, more[m], mine, m, out, added != nullptr, plan)) not_done |= 1u << m;
    __syncwarp();
  }
  for (int m = 0; not_done; ++m, not_done >>= 1)
    if (not_done & 1) redo(mine.row + m * 16);
}
/// The same for several products: `each_product(add)` calls add(t, b, plan, counts) for each.
template <class Each, class Redo> __device__ __forceinline__ void add_long(const Patch& mine, large* out, const large* added, const Plan& whole, const Each& each_product, const Redo& redo) {
  __shared__ Words rows_of_t[bands_of_sums][fine][32];
#pragma unroll 1
  for (int band = 0; band < bands; band += bands_of_sums) {
    float sum[bands_of_sums][tiles][4];
#pragma unroll
    for (int i = 0; i < bands_of_sums * tiles * 4; ++i) sum[i / (tiles * 4)][i / 4 % tiles][i % 4] = 0;
    each_product([&](const float* t, const float* b, const Plan& plan, const auto& counts) {
#pragma unroll 1
      for (int first = 0; first < static_cast<int>(plan.narrow); first += 16) {
        unsigned right[tiles][2][3];
        take_apart_columns(right, mine, b, first, plan);
        __syncthreads();
        take_apart_rows<bands_of_sums>(rows_of_t, mine.row + band * 16, t, first, plan, counts);
        __syncthreads();
#pragma unroll
        for (int m = 0; m < bands_of_sums; ++m) multiply_band(sum[m], rows_of_t[m], right);
      }
    });
    Eight more[bands_of_sums][2];
    read_added<bands_of_sums>(more, mine, band, added, whole);
#pragma unroll
    for (int m = 0; m < bands_of_sums; ++m)
      if (mine.there && !write_band(sum[m], more[m], mine, band + m, out, added != nullptr, whole)) redo(mine.row + (band + m) * 16);
    __syncwarp();
  }
}
/// total + the product of a row of t with a column of b, in floats.
__device__ __forceinline__ float add_exactly(float total, const float* t, const float* b, const Plan& plan, i64 row, i64 column) {
#pragma unroll 1
  for (i64 c = 0; c < plan.narrow; ++c) total = fmaf(t[row * plan.other[0] + c * plan.other[1]], b[column * plan.small[0] + c * plan.small[1]], total);
  return total;
}
)";
}

std::string spread_function(const NarrowKind& kind) {
  return spread_of_block(kind) +
         R"(__device__ __noinline__ void spread_exactly(large* out, const large* added, const float* t, const float* b, const Plan& plan, int row, int at) {
  write_exactly(out, added, plan, row, at, [&](i64 r, i64 c) { return add_exactly(0, t, b, plan, r, c); });
}
extern "C" __global__ void __launch_bounds__(threads, 2) spread(large* out, const large* added, const float* t, const float* b, const __grid_constant__ Plan plan) {
  begin();
  const Patch mine = patch_of_lane(plan);
  const auto all = [](int) { return true; };
  const auto redo = [&](int row) { spread_exactly(out, added, t, b, plan, row, mine.at); };
  if (plan.narrow <= 16) add_short(mine, out, added, t, b, plan, all, redo);
  else add_long(mine, out, added, plan, [&](const auto& add) { add(t, b, plan, all); }, redo);
}
)";
}

}  // namespace graft::cuda
