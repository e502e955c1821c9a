#include "targets/cuda_code/attend.h"

#include "targets/cuda_code/expressions.h"

namespace graft::cuda {

bool has_attend_code(int64_t size) { return size == 32 || size == 64 || size == 128 || size == 256; }

int64_t attend_partial(const AttendKind& kind) { return kind.rows * (kind.size + 2); }

// `lanes` threads have a key together, 8 numbers each, so that a warp has several keys at a time. Each such
// group goes its own way with a running maximum; what they found is joined at the end, in a fixed order.
std::string attend_functions(const AttendKind& kind) {
  std::string text = "constexpr int size = " + std::to_string(kind.size) +
                     ", rows = " + std::to_string(kind.rows) +
                     ", threads = " + std::to_string(attend_threads) + ";\n";
  text += "typedef " + std::string(memory_type(kind.bias)) + " added;\n";
  text +=
      "__device__ __forceinline__ float number_of(u16 x) { return " + in_register(kind.dtype, "x") + "; }\n";
  text += "__device__ __forceinline__ u16 stored(float x) { return " +
          in_memory(ir::DType::f32, kind.dtype, "x") + "; }\n";
  text += "__device__ __forceinline__ float added_of(added x) { return static_cast<float>(" +
          in_register(kind.bias, "x") + "); }\n";
  return text + R"(
constexpr int lanes = size / 8, groups_of_warp = 32 / lanes, warps = threads / 32;
constexpr int at_once = 4;  // keys that a group has on the way
struct Plan {
  i64 query[3], key[3], value[3], out[3], bias[4];
  int groups, heads_of_group, queries, keys, parts;
  float scale;
};
struct Eight { uint4 bits; };
__device__ __forceinline__ void numbers_of(const Eight& x, float* out) {
  const u16* each = reinterpret_cast<const u16*>(&x);
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = number_of(each[i]);
}
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ float share(float m, float most) { return m == most ? 1.0f : expf(m - most); }

extern "C" __global__ void __launch_bounds__(threads, 1) attend(u16* out, const u16* query, const u16* key, const u16* value, const added* bias, float* partial, Plan plan) {
  begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % lanes, group = lane / lanes;
  const int batch = blockIdx.x / plan.groups, head = blockIdx.x % plan.groups, first = blockIdx.z * rows;
  const int count = plan.heads_of_group * plan.queries;
  float q[rows][8], sum[rows][8], m[rows], l[rows];
  const added* more[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = first + r < count ? first + r : count - 1;
    const int h = head * plan.heads_of_group + row / plan.queries, at = row % plan.queries;
    numbers_of(*reinterpret_cast<const Eight*>(query + batch * plan.query[0] + h * plan.query[1] + at * plan.query[2] + part * 8), q[r]);
    more[r] = bias ? bias + batch * plan.bias[0] + h * plan.bias[1] + at * plan.bias[2] : nullptr;
    m[r] = minus_infinity();
    l[r] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) { q[r][i] *= plan.scale; sum[r][i] = 0; }
  }
  const u16* keys = key + batch * plan.key[0] + head * plan.key[1] + part * 8;
  const u16* values = value + batch * plan.value[0] + head * plan.value[1] + part * 8;
  const int each = (plan.keys + plan.parts - 1) / plan.parts;
  const int begin_key = blockIdx.y * each, end_key = begin_key + each < plan.keys ? begin_key + each : plan.keys;
  constexpr int step = warps * groups_of_warp;
  for (int base = begin_key + warp * groups_of_warp; base < end_key; base += at_once * step) {
    Eight k8[at_once], v8[at_once];
    float b[at_once][rows];
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const int at = base + u * step + group, t = at < end_key ? at : end_key - 1;
      k8[u] = *reinterpret_cast<const Eight*>(keys + t * plan.key[2]);
      v8[u] = *reinterpret_cast<const Eight*>(values + t * plan.value[2]);
#pragma unroll
      for (int r = 0; r < rows; ++r) b[u][r] = bias ? added_of(more[r][t * plan.bias[3]]) : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const bool live = base + u * step + group < end_key;
      float k[8], v[8];
      numbers_of(k8[u], k);
      numbers_of(v8[u], v);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) s += q[r][i] * k[i];
#pragma unroll
        for (int d = lanes / 2; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d);
        s = live ? s + b[u][r] : minus_infinity();
        const float most = fmaxf(m[r], s), keep = share(m[r], most);
        const float p = s == minus_infinity() ? 0.0f : expf(s - most);
        m[r] = most;
        l[r] = l[r] * keep + p;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r][i] = sum[r][i] * keep + p * v[i];
      }
    }
  }
  __shared__ float all_m[warps][rows], all_l[warps][rows], all_sum[warps][rows][size];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
#pragma unroll
    for (int d = lanes; d < 32; d *= 2) {
      const float other_m = __shfl_xor_sync(~0u, m[r], d), other_l = __shfl_xor_sync(~0u, l[r], d);
      const float most = fmaxf(m[r], other_m), mine = share(m[r], most), theirs = share(other_m, most);
      l[r] = l[r] * mine + other_l * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[r][i] = sum[r][i] * mine + __shfl_xor_sync(~0u, sum[r][i], d) * theirs;
      m[r] = most;
    }
    if (group == 0) {
      if (part == 0) { all_m[warp][r] = m[r]; all_l[warp][r] = l[r]; }
#pragma unroll
      for (int i = 0; i < 8; ++i) all_sum[warp][r][part * 8 + i] = sum[r][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * size; i += threads) {
    const int r = i / size, d = i % size, row = first + r;
    if (row >= count) break;
    float most = minus_infinity(), total = 0, found = 0;
    for (int w = 0; w < warps; ++w) most = fmaxf(most, all_m[w][r]);
    for (int w = 0; w < warps; ++w) {
      const float weight = share(all_m[w][r], most);
      total += all_l[w][r] * weight;
      found += all_sum[w][r][d] * weight;
    }
    if (plan.parts == 1) {
      const int h = head * plan.heads_of_group + row / plan.queries, at = row % plan.queries;
      out[batch * plan.out[0] + h * plan.out[1] + at * plan.out[2] + d] = stored(total == 0 ? 0.0f : found / total);
    } else {
      float* left = partial + ((i64(blockIdx.x) * gridDim.z + blockIdx.z) * plan.parts + blockIdx.y) * rows * (size + 2) + r * (size + 2);
      left[d] = found;
      if (d == 0) { left[size] = most; left[size + 1] = total; }
    }
  }
}

extern "C" __global__ void __launch_bounds__(threads) join_parts(u16* out, const float* partial, Plan plan) {
  begin();
  const int batch = blockIdx.x / plan.groups, head = blockIdx.x % plan.groups, first = blockIdx.z * rows;
  const int count = plan.heads_of_group * plan.queries;
  const float* left = partial + (i64(blockIdx.x) * gridDim.z + blockIdx.z) * plan.parts * rows * (size + 2);
  for (int i = threadIdx.x; i < rows * size; i += threads) {
    const int r = i / size, d = i % size, row = first + r;
    if (row >= count) break;
    float most = minus_infinity(), total = 0, found = 0;
    for (int p = 0; p < plan.parts; ++p) most = fmaxf(most, left[(p * rows + r) * (size + 2) + size]);
    for (int p = 0; p < plan.parts; ++p) {
      const float* one = left + (p * rows + r) * (size + 2);
      const float weight = share(one[size], most);
      total += one[size + 1] * weight;
      found += one[d] * weight;
    }
    const int h = head * plan.heads_of_group + row / plan.queries, at = row % plan.queries;
    out[batch * plan.out[0] + h * plan.out[1] + at * plan.out[2] + d] = stored(total == 0 ? 0.0f : found / total);
  }
}
)";
}

std::string attend_code(const AttendKind& kind) { return conversions() + attend_functions(kind); }

}  // namespace graft::cuda
