#include "targets/cuda_code/narrow_products.h"

#include "targets/cuda_code/expressions.h"

namespace graft::cuda {
namespace {

constexpr int kSumsWarps = 16, kSpreadWarps = 8, kSpreadBands = 2;

/// Sums of more columns take more room.
int dots_warps(const NarrowKind& kind) { return kind.columns > 32 ? 8 : 16; }

/// In how many bfloat16 a number of the dtype can be taken apart.
int parts_of(ir::DType dtype) { return dtype == ir::DType::bf16 ? 1 : dtype == ir::DType::f16 ? 2 : 3; }

std::string constant(const char* name, int64_t value) {
  return "constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

/// Types, how numbers are taken apart, and products of what they are taken apart in.
std::string beginning(const NarrowKind& kind, int warps) {
  std::string text = "typedef " + std::string(memory_type(kind.large)) + " large;\n";
  text += constant("parts", parts_of(kind.large)) + constant("warps", warps);
  text += constant("along", kind.small == Along::large ? 0 : kind.small == Along::narrow ? 1 : 2);
  text += "constexpr int threads = 32 * warps;\n";
  text += "__device__ __forceinline__ float number_of(large x) { return " + in_register(kind.large, "x") +
          "; }\n";
  text += "__device__ __forceinline__ large stored(float x) { return " +
          in_memory(ir::DType::f32, kind.large, "x") + "; }\n";
  return text + R"(struct Plan {
  i64 rows, columns, narrow, step, small[2], other[2], added;
};
template <class T, int count> struct alignas(count * sizeof(T) < 16 ? count * sizeof(T) : 16) Many { T each[count]; };
typedef Many<large, 8> Eight;
typedef Many<float, 4> Four;
typedef Many<float, 2> Two;
__device__ __forceinline__ unsigned bits_of(float x) { return static_cast<unsigned>(__float_as_int(x)); }
template <class T> __device__ __forceinline__ T read(const large* from, bool there) {
  T x{};
  if (there) x = *reinterpret_cast<const T*>(from);
  return x;
}
/// Rounded, 16 bytes at once. (Left to the compiler, they are stored one by one, which takes many times as long.)
__device__ __forceinline__ void write_eight(large* to, const float* x) {
  unsigned words[8];
  if constexpr (sizeof(large) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = static_cast<unsigned>(stored(x[i * 2])) | static_cast<unsigned>(stored(x[i * 2 + 1])) << 16;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = bits_of(x[i]);
  }
#pragma unroll
  for (int i = 0; i < int(sizeof(large)) / 2; ++i)
    store_words(reinterpret_cast<unsigned*>(to) + i * 4, words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]);
}
/// Two floats as pairs of bfloat16: the upper half of each, then that of what is left, and so on.
template <int count> __device__ __forceinline__ void take_apart(float x, float y, unsigned* to) {
#pragma unroll
  for (int p = 0; p < count; ++p) {
    const unsigned a = bits_of(x) & 0xffff0000u, b = bits_of(y) & 0xffff0000u;
    to[p] = a >> 16 | b;
    x = x - __int_as_float(static_cast<int>(a));
    y = y - __int_as_float(static_cast<int>(b));
  }
}
/// Two numbers of the large matrix, which may lie apart.
__device__ __forceinline__ void take_apart_large(large x, large y, unsigned* to) {
  if constexpr (parts == 1) to[0] = static_cast<unsigned>(x) | static_cast<unsigned>(y) << 16;
  else take_apart<parts>(number_of(x), number_of(y), to);
}
/// sum += a * b of a tile, the numbers taken apart into so many.
template <int of_a, int of_b> __device__ __forceinline__ void multiply_parts(float* sum, const unsigned a[4][3], const unsigned b[2][3]) {
#pragma unroll
  for (int i = of_a - 1; i >= 0; --i)
#pragma unroll
    for (int j = of_b - 1; j >= 0; --j)
      if (i + j < 3) multiply_tile(sum, a[0][i], a[1][i], a[2][i], a[3][i], b[0][j], b[1][j]);
}
__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 0x1.fffffep127f; }
)";
}

}  // namespace

NarrowShape dots_shape(const NarrowKind& kind) { return {32 * dots_warps(kind), 16, 0, kind.columns}; }
NarrowShape sums_shape(const NarrowKind& kind) { return {32 * kSumsWarps, 0, kind.columns, 16}; }
NarrowShape spread_shape() { return {32 * kSpreadWarps, 16 * kSpreadBands, 32 * kSpreadWarps, 0}; }

std::string narrow_code(const std::string& function) {
  return conversions() +
         std::string(
             R"(__device__ __forceinline__ void multiply_tile(float* sum, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void store_words(unsigned* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
)") + function;
}

// In a tile [16, 16] x [16, 8] a lane (g = lane / 4, t = lane % 4) has the elements 2t, 2t + 1, 2t + 8, 2t +
// 9 of rows g and g + 8 of the one and of column g of the other, and columns 2t, 2t + 1 of rows g and g + 8
// of the sums. Which columns of x these elements are is free, as long as it is the same in w: a lane reads
// eight neighbours for two tiles. Warps have other columns of x; their sums are added in a fixed order.
std::string dots_function(const NarrowKind& kind) {
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
extern "C" __global__ void __launch_bounds__(threads, 1) dots(float* out, const large* x, const float* w, Plan plan) {
  __shared__ float left[warps][16 * across];
  begin();
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
    out[r * plan.other[0] + c * plan.other[1]] = total;
  }
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
// apart once for all warps, and lies in shared memory as lanes read it.
std::string spread_function(const NarrowKind& kind) {
  return beginning(kind, kSpreadWarps) + constant("bands", kSpreadBands) + R"(constexpr int tiles = 4;
typedef Many<unsigned, 4> Words;
extern "C" __global__ void __launch_bounds__(threads, 2) spread(large* out, const large* added, const float* t, const float* b, Plan plan) {
  __shared__ Words rows_of_t[bands][3][32];
  begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, lane_t = lane % 4;
  const i64 row = i64(blockIdx.x) * bands * 16, start = (i64(blockIdx.y) * warps + warp) * 32, at = start + lane_t * 8;
  const int narrow = static_cast<int>(plan.narrow);
  const bool has_columns = at < plan.columns;
  Eight more[bands * 2];  // of rows g, g + 8 and so on
#pragma unroll
  for (int m = 0; m < bands * 2; ++m) more[m] = read<Eight>(added + (row + g + m * 8) * plan.added + at, added && has_columns && row + g + m * 8 < plan.rows);
  float sum[bands][tiles][4];
#pragma unroll
  for (int m = 0; m < bands; ++m)
#pragma unroll
    for (int n = 0; n < tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][n][i] = 0;
  const i64 column = start + g / 2 * 8 + g % 2;  // and every other one
  const float* of_b = b + column * plan.small[0] + lane_t * 2 * plan.small[1];
  for (int first = 0; first < narrow; first += 16) {
    if (first > 0) __syncthreads();
    for (int i = threadIdx.x; i < bands * 128; i += threads) {
      const int of = i % 128 / 4, which = first + of % 4 * 2 + i % 4 / 2 * 8;
      const i64 r = row + i / 128 * 16 + of / 4 + i % 2 * 8;
      const float* from = t + r * plan.other[0] + which * plan.other[1];
      unsigned words[3];
      take_apart<3>(r < plan.rows && which < narrow ? from[0] : 0.0f, r < plan.rows && which + 1 < narrow ? from[plan.other[1]] : 0.0f, words);
#pragma unroll
      for (int p = 0; p < 3; ++p) rows_of_t[i / 128][p][of].each[i % 4] = words[p];
    }
    unsigned right[tiles][2][3];
#pragma unroll
    for (int n = 0; n < tiles; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int which = first + lane_t * 2 + i * 8;
        const bool there = column + n * 2 < plan.columns && which < narrow;
        const float* from = of_b + n * 2 * plan.small[0] + (first + i * 8) * plan.small[1];
        Two two{};
        if constexpr (along == 1) {
          if (there) two = *reinterpret_cast<const Two*>(from);
        } else if (there) {
          two.each[0] = from[0];
          if (which + 1 < narrow) two.each[1] = from[plan.small[1]];
        }
        take_apart<3>(two.each[0], two.each[1], right[n][i]);
      }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < bands; ++m) {
      unsigned a[4][3];
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        const Words words = rows_of_t[m][p][lane];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i][p] = words.each[i];
      }
#pragma unroll
      for (int n = 0; n < tiles; ++n) multiply_parts<3, 3>(sum[m][n], a, right[n]);
    }
  }
  if (!has_columns) return;
  float none = 0;  // NaN where one of the sums is not finite
#pragma unroll
  for (int m = 0; m < bands * 2; ++m) {
    float total[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      total[i] = sum[m / 2][i / 2][m % 2 * 2 + i % 2];
      none = fmaf(total[i], 0.0f, none);
      if (added) total[i] = number_of(more[m].each[i]) + total[i];
    }
    if (row + g + m * 8 < plan.rows) write_eight(out + (row + g + m * 8) * plan.step + at, total);
  }
  if (none == 0) return;
#pragma unroll 1
  for (i64 here = row + g; here < plan.rows && here < row + bands * 16; here += 8)
#pragma unroll 1
    for (i64 each = at; each < at + 8; ++each) {
      float total = 0;
#pragma unroll 1
      for (i64 c = 0; c < plan.narrow; ++c) total = fmaf(t[here * plan.other[0] + c * plan.other[1]], b[each * plan.small[0] + c * plan.small[1]], total);
      out[here * plan.step + each] = stored(added ? number_of(added[here * plan.added + each]) + total : total);
    }
}
)";
}

}  // namespace graft::cuda
