#include "targets/cuda_code/matrix_parts.h"

#include "targets/cuda_code/expressions.h"

namespace graft::cuda {
namespace {

/// In how many bfloat16 a number of the dtype can be taken apart.
int parts_of(ir::DType dtype) { return dtype == ir::DType::bf16 ? 1 : dtype == ir::DType::f16 ? 2 : 3; }

}  // namespace

std::string constant(const char* name, int64_t value) {
  return "constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

std::string parts_beginning(ir::DType large, int warps) {
  std::string text = "typedef " + std::string(memory_type(large)) + " large;\n";
  text += constant("parts", parts_of(large)) + constant("warps", warps);
  text += "constexpr int threads = 32 * warps;\n";
  text += "__device__ __forceinline__ float number_of(large x) { return " + in_register(large, "x") + "; }\n";
  text += "__device__ __forceinline__ large stored(float x) { return " +
          in_memory(ir::DType::f32, large, "x") + "; }\n";
  const char* two = large == ir::DType::f16    ? "two_halves(x, y)"
                    : large == ir::DType::bf16 ? "two_bf16(x, y)"
                                               : "0";
  text += "__device__ __forceinline__ unsigned stored_two(float x, float y) { return " + std::string(two) +
          "; }\n";
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
    for (int i = 0; i < 4; ++i) words[i] = stored_two(x[i * 2], x[i * 2 + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = bits_of(x[i]);
  }
#pragma unroll
  for (int i = 0; i < int(sizeof(large)) / 2; ++i)
    store_words(reinterpret_cast<unsigned*>(to) + i * 4, words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]);
}
/// Two floats as pairs of bfloat16: the nearest to each, then that to what is left, and so on.
template <int count> __device__ __forceinline__ void take_apart(float x, float y, unsigned* to) {
#pragma unroll
  for (int p = 0; p < count; ++p) {
    to[p] = two_bf16(x, y);
    x = x - __int_as_float(static_cast<int>(to[p] << 16));
    y = y - __int_as_float(static_cast<int>(to[p] & 0xffff0000u));
  }
}
/// Two numbers of the large matrix, which may lie apart.
__device__ __forceinline__ void take_apart_large(large x, large y, unsigned* to) {
  if constexpr (parts == 1) to[0] = static_cast<unsigned>(x) | static_cast<unsigned>(y) << 16;
  else take_apart<parts>(number_of(x), number_of(y), to);
}
/// sum += a * b of a tile, the numbers taken apart into so many.
template <int of_a, int of_b> __device__ __forceinline__ void multiply_parts(float* sum, const unsigned a[4][3], const unsigned b[2][3]) {
  constexpr int most = of_a == 2 && of_b == 2 ? 2 : 3;
#pragma unroll
  for (int i = of_a - 1; i >= 0; --i)
#pragma unroll
    for (int j = of_b - 1; j >= 0; --j)
      if (i + j < most) multiply_tile(sum, a[0][i], a[1][i], a[2][i], a[3][i], b[0][j], b[1][j]);
}
__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 0x1.fffffep127f; }
)";
}

std::string matrix_code(const std::string& function) {
  return conversions() +
         std::string(
             R"(__device__ __forceinline__ void multiply_tile(float* sum, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned two_halves(float x, float y) { unsigned z; asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(z) : "f"(x), "f"(y)); return z; }
__device__ __forceinline__ unsigned two_bf16(float x, float y) { unsigned z; asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(z) : "f"(x), "f"(y)); return z; }
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void publish(const float*, int) { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ float published(const float* mine, int block) {
  const auto here = static_cast<unsigned>(__cvta_generic_to_shared(mine));
  unsigned there;
  float x;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
  return x;
}
#else
__device__ __forceinline__ void publish(const float*, int) { __syncthreads(); }
__device__ __forceinline__ float published(const float* mine, int) { return *mine; }
#endif
__device__ __forceinline__ void leave_cluster() { publish(nullptr, 0); }
__device__ __forceinline__ void store_words(unsigned* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
)") + function;
}

}  // namespace graft::cuda
