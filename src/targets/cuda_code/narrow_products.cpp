#include "targets/cuda_code/narrow_products.h"

#include "targets/cuda_code/expressions.h"

namespace graft::cuda {
namespace {

/// Types, and how 16 bytes of the large matrix are read and written.
std::string beginning(const NarrowKind& kind) {
  const bool half = ir::is_half(kind.large);
  const std::string along = kind.small == Along::large ? "0" : kind.small == Along::narrow ? "1" : "2";
  return "typedef " + std::string(memory_type(kind.large)) + " large;\n" +
         "constexpr int per = " + (half ? "8" : "4") + ", across = " + std::to_string(narrow_columns) +
         ", threads = " + std::to_string(narrow_threads) + ", warps = threads / 32, along = " + along +
         ";\n" + "__device__ __forceinline__ float number_of(large x) { return " +
         in_register(kind.large, "x") + "; }\n__device__ __forceinline__ large stored(float x) { return " +
         in_memory(ir::DType::f32, kind.large, "x") + "; }\n" + R"(struct Plan {
  i64 rows, columns, narrow, step, small[2], other[2], added, parts;
};
struct alignas(16) Sixteen { large each[per]; };
struct alignas(16) Four { float each[4]; };
struct alignas(8) Two { float each[2]; };
__device__ __forceinline__ void numbers_at(const large* from, float* to) {
  const Sixteen x = *reinterpret_cast<const Sixteen*>(from);
#pragma unroll
  for (int i = 0; i < per; ++i) to[i] = number_of(x.each[i]);
}
__device__ __forceinline__ void floats_at(const float* from, float* to) {
  const Four x = *reinterpret_cast<const Four*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = x.each[i];
}
)";
}

}  // namespace

int64_t sums_columns(ir::DType large) { return 32 * (ir::is_half(large) ? 8 : 4); }

std::string narrow_code(const std::string& function) { return conversions() + function; }

// Eight lanes have `per` neighbouring columns each, of the same rows; the four such groups of a warp have
// rows of their own, and the warps of a block have the same rows and other columns. A piece of w comes by way
// of shared memory, in the order in which lanes read it, while the next piece of x is on its way. Sums are
// added up over lanes, which end with some of them each, and then over warps, in a fixed order.
std::string dots_function(const NarrowKind& kind) {
  return beginning(kind) + "constexpr int rows = " + std::to_string(kind.rows / 4) + ";\n" +
         R"(constexpr int lanes = 8, of_warp = lanes * per, piece = warps * of_warp;
/// Where a lane finds an element of a piece: neighbouring lanes read neighbouring memory.
__device__ __forceinline__ int place_of(int i) {
  const int inside = i % of_warp;
  return i - inside + inside % per / 4 * (lanes * 4) + inside / per * 4 + inside % 4;
}
__device__ __forceinline__ void take_piece(float to[across][piece], const float* w, const Plan& plan, i64 begin_at, i64 column) {
  if constexpr (along == 0) {
#pragma unroll 4
    for (int i = threadIdx.x * 4; i < across * piece; i += threads * 4) {
      const i64 at = begin_at + i % piece, c = column + i / piece;
      float four[4] = {};
      if (at < plan.columns && c < plan.narrow) floats_at(w + at + c * plan.small[1], four);
      *reinterpret_cast<Four*>(&to[i / piece][place_of(i % piece)]) = {{four[0], four[1], four[2], four[3]}};
    }
  } else if constexpr (along == 1) {
#pragma unroll 4
    for (int i = threadIdx.x; i < across / 4 * piece; i += threads) {
      const i64 at = begin_at + i % piece, c = column + i / piece * 4;
      float four[4] = {};
      if (at < plan.columns && c < plan.narrow) floats_at(w + at * plan.small[0] + c, four);
#pragma unroll
      for (int e = 0; e < 4; ++e) to[i / piece * 4 + e][place_of(i % piece)] = four[e];
    }
  } else {
    for (int i = threadIdx.x; i < across * piece; i += threads) {
      const i64 at = begin_at + i % piece, c = column + i / piece;
      to[i / piece][place_of(i % piece)] = at < plan.columns && c < plan.narrow ? w[at * plan.small[0] + c * plan.small[1]] : 0.0f;
    }
  }
}
/// Of two lanes at this distance one goes on with the first half of the sums, one with the second.
template <int half, int distance> __device__ __forceinline__ void add_over_lanes(float* sum) {
  const bool upper = threadIdx.x & distance;
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float given = __shfl_xor_sync(~0u, upper ? sum[i] : sum[i + half], distance);
    sum[i] = (upper ? sum[i + half] : sum[i]) + given;
  }
  if constexpr (distance > 1) add_over_lanes<half / 2, distance / 2>(sum);
}
extern "C" __global__ void __launch_bounds__(threads, rows == 2 ? 2 : 1) dots(float* out, const large* x, const float* w, Plan plan) {
  alignas(16) __shared__ float piece_of_w[across][piece];
  __shared__ float left[warps][4 * rows * across];
  begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / lanes, part = lane % lanes;
  const i64 row = i64(blockIdx.x) * rows * 4 + group * rows, first = i64(blockIdx.y) * across;
  const i64 mine = warp * of_warp + part * per;
  float sum[rows * across];
#pragma unroll
  for (int i = 0; i < rows * across; ++i) sum[i] = 0;
  Sixteen next[rows];
  const auto fetch = [&](i64 at) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (at < plan.columns) next[r] = *reinterpret_cast<const Sixteen*>(x + (row + r < plan.rows ? row + r : plan.rows - 1) * plan.step + at);
      else for (int i = 0; i < per; ++i) next[r].each[i] = stored(0.0f);
    }
  };
  fetch(mine);
  for (i64 begin_at = 0; begin_at < plan.columns; begin_at += piece) {
    if (begin_at > 0) __syncthreads();
    take_piece(piece_of_w, w, plan, begin_at, first);
    float numbers[rows][per];
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int i = 0; i < per; ++i) numbers[r][i] = number_of(next[r].each[i]);
    fetch(begin_at + piece + mine);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < across; ++c) {
      float few[per];
#pragma unroll
      for (int i = 0; i < per; i += 4) floats_at(&piece_of_w[c][warp * of_warp + i * lanes + part * 4], few + i);
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int i = 0; i < per; ++i) sum[r * across + c] = fmaf(numbers[r][i], few[i], sum[r * across + c]);
    }
  }
  add_over_lanes<rows * across / 2, lanes / 2>(sum);
  constexpr int ends_with = rows * across / lanes;
#pragma unroll
  for (int i = 0; i < ends_with; ++i) left[warp][group * rows * across + part * ends_with + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 4 * rows * across; i += threads) {
    float total = 0;
#pragma unroll
    for (int other = 0; other < warps; ++other) total += left[other][i];
    const i64 r = i64(blockIdx.x) * rows * 4 + i / across, c = first + i % across;
    if (r < plan.rows && c < plan.narrow) out[r * plan.other[0] + c * plan.other[1]] = total;
  }
}
)";
}

// A lane has `per` neighbouring columns, and a warp every eighth row of its part. Rows of t come by way of
// shared memory, while the next rows of x are on their way.
std::string sums_functions(const NarrowKind& kind) {
  return beginning(kind) + R"(constexpr int rows = 4, stage = rows * warps;
extern "C" __global__ void __launch_bounds__(threads, 1) sums(float* out, const large* x, const float* t, Plan plan) {
  constexpr int at_once = 2;  // columns of t whose sums are exchanged between warps
  __shared__ float left[warps][at_once * per * 32];
  alignas(16) __shared__ float rows_of_t[2][stage][across];
  begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 start = i64(blockIdx.x) * 32 * per, at = start + lane * per, first = i64(blockIdx.y) * across;
  const i64 share = (plan.rows + plan.parts - 1) / plan.parts, begin_row = blockIdx.z * share;
  const i64 end_row = begin_row + share < plan.rows ? begin_row + share : plan.rows;
  float sum[across][per];
#pragma unroll
  for (int c = 0; c < across; ++c)
#pragma unroll
    for (int i = 0; i < per; ++i) sum[c][i] = 0;
  Sixteen next[rows];
  const auto fetch = [&](i64 from) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const i64 row = from + r * warps + warp;
      if (at < plan.columns && row < end_row) next[r] = *reinterpret_cast<const Sixteen*>(x + row * plan.step + at);
      else for (int i = 0; i < per; ++i) next[r].each[i] = stored(0.0f);
    }
  };
  const auto take_rows = [&](i64 from, int which) {
#pragma unroll
    for (int i = threadIdx.x; i < stage * across; i += threads) {
      const i64 row = from + i / across, c = first + i % across;
      rows_of_t[which][i / across][i % across] = row < end_row && c < plan.narrow ? t[row * plan.small[0] + c * plan.small[1]] : 0.0f;
    }
  };
  fetch(begin_row);
  take_rows(begin_row, 0);
  int which = 0;
  for (i64 from = begin_row; from < end_row; from += stage, which ^= 1) {
    __syncthreads();
    Sixteen mine[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) mine[r] = next[r];
    if (from + stage < end_row) {
      fetch(from + stage);
      take_rows(from + stage, which ^ 1);
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float numbers[per];
#pragma unroll
      for (int i = 0; i < per; ++i) numbers[i] = number_of(mine[r].each[i]);
#pragma unroll
      for (int c = 0; c < across; c += 4) {
        float few[4];
        floats_at(&rows_of_t[which][r * warps + warp][c], few);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
          for (int i = 0; i < per; ++i) sum[c + e][i] = fmaf(numbers[i], few[e], sum[c + e][i]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < across; c += at_once) {
    if (c > 0) __syncthreads();
#pragma unroll
    for (int e = 0; e < at_once; ++e)
#pragma unroll
      for (int i = 0; i < per; ++i) left[warp][(e * 32 + lane) * per + i] = sum[c + e][i];
    __syncthreads();
    for (int i = threadIdx.x; i < at_once * per * 32; i += threads) {
      float total = 0;
#pragma unroll
      for (int other = 0; other < warps; ++other) total += left[other][i];
      const i64 column = start + i % (32 * per), number = first + c + i / (32 * per);
      if (column >= plan.columns || number >= plan.narrow) continue;
      if (plan.parts == 1) out[column * plan.other[0] + number * plan.other[1]] = total;
      else out[(blockIdx.z * plan.narrow + number) * plan.columns + column] = total;
    }
  }
}
extern "C" __global__ void __launch_bounds__(threads) join_sums(float* out, const float* parts, Plan plan) {
  begin();
  const i64 all = plan.narrow * plan.columns, i = i64(blockIdx.x) * threads + threadIdx.x;
  if (i >= all) return;
  float total = 0;
  for (i64 part = 0; part < plan.parts; ++part) total += parts[part * all + i];
  out[i % plan.columns * plan.other[0] + i / plan.columns * plan.other[1]] = total;
}
)";
}

// A lane has `per` neighbouring columns of eight rows. t and b come by way of shared memory, 16 of the short
// side at a time.
std::string spread_function(const NarrowKind& kind) {
  return beginning(kind) + "constexpr int rows = " + std::to_string(spread_rows / 8) + ";\n" +
         R"(extern "C" __global__ void __launch_bounds__(threads, 2) spread(large* out, const large* added, const float* t, const float* b, Plan plan) {
  constexpr int width = 32 * per;
  alignas(16) __shared__ float rows_of_t[rows * warps][across], rows_of_b[across][width];
  begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 row = i64(blockIdx.x) * rows * warps, start = i64(blockIdx.y) * width, at = start + lane * per;
  float sum[rows][per];
#pragma unroll
  for (int r = 0; r < rows; ++r)
#pragma unroll
    for (int i = 0; i < per; ++i) sum[r][i] = 0;
  for (i64 first = 0; first < plan.narrow; first += across) {
    if (first > 0) __syncthreads();
    for (int i = threadIdx.x; i < rows * warps * across; i += threads) {
      const i64 r = row + i / across, c = first + i % across;
      rows_of_t[i / across][i % across] = r < plan.rows && c < plan.narrow ? t[r * plan.other[0] + c * plan.other[1]] : 0.0f;
    }
    if constexpr (along == 1) {  // a column of b lies in a row
#pragma unroll 2
      for (int i = threadIdx.x; i < width * (across / 4); i += threads) {
        const i64 column = start + i % width, c = first + i / width * 4;
        float four[4] = {};
        if (column < plan.columns && c < plan.narrow) floats_at(b + column * plan.small[0] + c, four);
#pragma unroll
        for (int e = 0; e < 4; ++e) rows_of_b[i / width * 4 + e][i % width] = four[e];
      }
    } else {
      for (int i = threadIdx.x; i < width * across; i += threads) {
        const i64 column = start + i % width, c = first + i / width;
        rows_of_b[i / width][i % width] =
            column < plan.columns && c < plan.narrow ? b[column * plan.small[0] + c * plan.small[1]] : 0.0f;
      }
    }
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < across; c += 2) {
      float few[rows][2];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const Two two = *reinterpret_cast<const Two*>(&rows_of_t[warp * rows + r][c]);
        few[r][0] = two.each[0], few[r][1] = two.each[1];
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float wide[per];
#pragma unroll
        for (int i = 0; i < per; i += 4) floats_at(&rows_of_b[c + e][lane * per + i], wide + i);
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
          for (int i = 0; i < per; ++i) sum[r][i] = fmaf(few[r][e], wide[i], sum[r][i]);
      }
    }
  }
  if (at >= plan.columns) return;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const i64 here = row + warp * rows + r;
    if (here >= plan.rows) continue;
    if (added) {
      float more[per];
      numbers_at(added + here * plan.added + at, more);
#pragma unroll
      for (int i = 0; i < per; ++i) sum[r][i] = more[i] + sum[r][i];
    }
    Sixteen made;
#pragma unroll
    for (int i = 0; i < per; ++i) made.each[i] = stored(sum[r][i]);
    *reinterpret_cast<Sixteen*>(out + here * plan.step + at) = made;
  }
}
)";
}

}  // namespace graft::cuda
