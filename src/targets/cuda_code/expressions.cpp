#include "targets/cuda_code/expressions.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "graft/error.h"

namespace graft::cuda {

using codegen::Instruction;
using codegen::Op;
using ir::DType;

const char* conversions() {
  return R"(typedef long long i64; typedef unsigned short u16;
__device__ __forceinline__ float half_to_float(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ __forceinline__ u16 float_to_half(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
__device__ __forceinline__ float bf16_to_float(u16 x) { return __int_as_float(static_cast<int>(x) << 16); }
__device__ __forceinline__ u16 float_to_bf16(float x) { u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
__device__ __forceinline__ void fail(int* failed, int mark) { *failed = mark; *reinterpret_cast<int**>(failed + 2)[0] = mark; }
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void begin() { asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void begin() {}
#endif
)";
}

const char* helpers() {
  return R"(template <class T> __device__ __forceinline__ T larger(T x, T y) { return x != x ? x : x > y ? x : y; }
template <class T> __device__ __forceinline__ T smaller(T x, T y) { return x != x ? x : x < y ? x : y; }
template <class T> __device__ __forceinline__ T sign_of(T x) { return static_cast<T>((x > T(0)) - (x < T(0))); }
template <class T> __device__ __forceinline__ T sigmoid_of(T x) { const T e = exp(-fabs(x)); return (x < T(0) ? e : T(1)) / (T(1) + e); }
template <class T> __device__ __forceinline__ T remainder_of(T x, T y) { const T r = fmod(x, y); return r != T(0) && ((r < T(0)) != (y < T(0))) ? r + y : r; }
template <class T> __device__ __forceinline__ T shifted_left(T x, T by) { return by < T(0) || by >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(static_cast<unsigned long long>(x) << by); }
template <class T> __device__ __forceinline__ T shifted_right(T x, T by) { constexpr int most = 8 * sizeof(T) - (T(-1) < T(0)); return static_cast<T>(x >> (by < T(0) || by >= T(most) ? most : int(by))); }
template <class T> __device__ __forceinline__ bool wins(bool largest, T x, i64 at, T y, i64 where) {
  if (at < 0) return false;
  if (where < 0) return true;
  const bool x_nan = x != x, y_nan = y != y;
  if (x_nan != y_nan) return x_nan;
  if (!x_nan && x != y) return largest ? x > y : x < y;
  return at < where;
}
template <class T> __device__ __forceinline__ T from_lane(T x, int distance) {
  if constexpr (sizeof(T) < 4) return static_cast<T>(__shfl_xor_sync(~0u, static_cast<int>(x), distance));
  else return __shfl_xor_sync(~0u, x, distance);
}
template <class Piece, int N, class T> __device__ __forceinline__ void copy_pieces(T* to, const T* from) {
  for (int i = 0; i < int(N * sizeof(T) / sizeof(Piece)); ++i) reinterpret_cast<Piece*>(to)[i] = reinterpret_cast<const Piece*>(from)[i];
}
template <int N, class T> __device__ __forceinline__ void copy_many(T* to, const T* from, const void* place) {
  constexpr int bytes = N * sizeof(T);
  if constexpr (bytes % 16 == 0) { if ((reinterpret_cast<size_t>(place) & 15) == 0) return copy_pieces<uint4, N>(to, from); }
  else if constexpr (bytes == 8) { if ((reinterpret_cast<size_t>(place) & 7) == 0) return copy_pieces<uint2, N>(to, from); }
  else if constexpr (bytes == 4) { if ((reinterpret_cast<size_t>(place) & 3) == 0) return copy_pieces<unsigned, N>(to, from); }
  for (int i = 0; i < N; ++i) to[i] = from[i];
}
template <int N, class T> __device__ __forceinline__ void copy_aligned(T* to, const T* from, const void*) {
  constexpr int bytes = N * sizeof(T);
  if constexpr (bytes % 16 == 0) copy_pieces<uint4, N>(to, from);
  else if constexpr (bytes == 8) copy_pieces<uint2, N>(to, from);
  else if constexpr (bytes == 4) copy_pieces<unsigned, N>(to, from);
  else for (int i = 0; i < N; ++i) to[i] = from[i];
}
)";
}

const char* register_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return "float";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "int";
    case DType::i16:
      return "short";
    case DType::i8:
      return "signed char";
    case DType::u8:
      return "unsigned char";
    case DType::boolean:
      return "bool";
    default:
      throw Error("[cuda] no code for numbers of type " + std::string(ir::name_of(dtype)));
  }
}

const char* memory_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? "u16" : register_type(dtype);
}

std::string number(double x, DType dtype) {
  const bool wide = dtype == DType::f64;
  if (std::isnan(x))
    return wide ? "__longlong_as_double(0x7ff8000000000000ll)" : "__int_as_float(0x7fc00000)";
  if (std::isinf(x)) {
    const std::string size =
        wide ? "__longlong_as_double(0x7ff0000000000000ll)" : "__int_as_float(0x7f800000)";
    return x < 0 ? "(-" + size + ")" : size;
  }
  std::ostringstream text;
  text << std::hexfloat << (wide ? x : static_cast<double>(static_cast<float>(x)));
  return "(" + text.str() + (wide ? ")" : "f)");
}

namespace {

std::string cast(DType from, DType to, const std::string& x) {
  if (to == DType::boolean) return "(" + x + " != 0)";
  const auto type = std::string(register_type(to));
  // Through a wide integer, as ATen's kernels go: what does not fit leaves its low bits.
  if (ir::is_floating(from) && !ir::is_floating(to) && to != DType::i64)
    return "static_cast<" + type + ">(i64(" + x + "))";
  return "static_cast<" + type + ">(" + x + ")";
}

}  // namespace

std::string identity(Op op, DType dtype) {
  const bool real = ir::is_floating(dtype);
  const auto extreme = [&](bool low) -> std::string {
    if (real) return number(low ? -INFINITY : INFINITY, dtype);
    switch (dtype) {
      case DType::boolean:
        return low ? "false" : "true";
      case DType::i64:
        return low ? "(-9223372036854775807ll - 1)" : "9223372036854775807ll";
      case DType::i32:
        return low ? "(-2147483647 - 1)" : "2147483647";
      case DType::i16:
        return low ? "-32768" : "32767";
      case DType::i8:
        return low ? "-128" : "127";
      default:
        return low ? "0" : "255";
    }
  };
  switch (op) {
    case Op::reduce_prod:
    case Op::reduce_all:
      return "1";
    case Op::reduce_max:
    case Op::reduce_argmax:
      return extreme(true);
    case Op::reduce_min:
    case Op::reduce_argmin:
      return extreme(false);
    default:
      return "0";
  }
}

std::string combined(Op op, const std::string& a, const std::string& b) {
  switch (op) {
    case Op::reduce_sum:
      return a + " + " + b;
    case Op::reduce_prod:
      return a + " * " + b;
    case Op::reduce_max:
      return "larger(" + b + ", " + a + ")";
    case Op::reduce_min:
      return "smaller(" + b + ", " + a + ")";
    case Op::reduce_any:
      return a + " || " + b;
    default:
      return a + " && " + b;
  }
}

std::string in_memory(DType held, DType memory, const std::string& x) {
  if (memory == DType::f16) return "float_to_half(float(" + x + "))";
  if (memory == DType::bf16) return "float_to_bf16(float(" + x + "))";
  return cast(held, memory, x);
}

std::string in_register(DType memory, const std::string& x) {
  if (memory == DType::f16) return "half_to_float(" + x + ")";
  if (memory == DType::bf16) return "bf16_to_float(" + x + ")";
  return x;
}

std::string computed(const Instruction& i, const std::vector<std::string>& a) {
  const bool wide = i.dtype == DType::f64;
  const auto of = [&](const char* name) { return std::string(name) + (wide ? "" : "f") + "(" + a[0] + ")"; };
  const auto between = [&](const char* sign) { return "(" + a[0] + " " + sign + " " + a[1] + ")"; };
  switch (i.op) {
    case Op::cast:
      return cast(DType::f64, i.dtype, a[0]);  // right for what comes from whole numbers, too
    case Op::round_half:
      return "half_to_float(float_to_half(" + a[0] + "))";
    case Op::round_bf16:
      return "bf16_to_float(float_to_bf16(" + a[0] + "))";
    case Op::neg:
      return "(-" + a[0] + ")";
    case Op::abs:
      return ir::is_floating(i.dtype) ? of("fabs") : "(" + a[0] + " < 0 ? -" + a[0] + " : " + a[0] + ")";
    case Op::sign:
      return "sign_of(" + a[0] + ")";
    case Op::reciprocal:
      return "(1 / " + a[0] + ")";
    case Op::rsqrt:
      return wide ? "(1 / sqrt(" + a[0] + "))" : "(1 / sqrtf(" + a[0] + "))";
    case Op::sqrt:
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::erf:
    case Op::erfc:
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
      return of(std::string(codegen::name_of(i.op)).c_str());
    case Op::round:
      return of("rint");
    case Op::sigmoid:
      return "sigmoid_of(" + a[0] + ")";
    case Op::logical_not:
      return "(!" + a[0] + ")";
    case Op::bitwise_not:
      return i.dtype == DType::boolean ? "(!" + a[0] + ")" : "(~" + a[0] + ")";
    case Op::is_nan:
      return "(" + a[0] + " != " + a[0] + ")";
    case Op::is_inf:
      return "isinf(" + a[0] + ")";
    case Op::add:
      return between("+");
    case Op::sub:
      return between("-");
    case Op::mul:
      return between("*");
    case Op::div:
      return between("/");
    case Op::pow:
      return (wide ? "pow(" : "powf(") + a[0] + ", " + a[1] + ")";
    case Op::maximum:
      return "larger(" + a[0] + ", " + a[1] + ")";
    case Op::minimum:
      return "smaller(" + a[0] + ", " + a[1] + ")";
    case Op::fmod:
      if (!ir::is_floating(i.dtype)) return between("%");
      return (wide ? "fmod(" : "fmodf(") + a[0] + ", " + a[1] + ")";
    case Op::copysign:
      return (wide ? "copysign(" : "copysignf(") + a[0] + ", " + a[1] + ")";
    case Op::shift_left:
      return "shifted_left<" + std::string(register_type(i.dtype)) + ">(" + a[0] + ", " + a[1] + ")";
    case Op::shift_right:
      return "shifted_right<" + std::string(register_type(i.dtype)) + ">(" + a[0] + ", " + a[1] + ")";
    case Op::remainder:
      return "remainder_of(" + a[0] + ", " + a[1] + ")";
    case Op::eq:
      return between("==");
    case Op::ne:
      return between("!=");
    case Op::lt:
      return between("<");
    case Op::le:
      return between("<=");
    case Op::gt:
      return between(">");
    case Op::ge:
      return between(">=");
    case Op::logical_and:
      return between("&&");
    case Op::logical_or:
      return between("||");
    case Op::logical_xor:
      return between("!=");
    case Op::bitwise_and:
      return between("&");
    case Op::bitwise_or:
      return between("|");
    case Op::bitwise_xor:
      return between("^");
    case Op::select:
      return "(" + a[0] + " ? " + a[1] + " : " + a[2] + ")";
    case Op::fma:
      return (wide ? "fma(" : "fmaf(") + a[0] + ", " + a[1] + ", " + a[2] + ")";
    default:
      throw std::logic_error("no code for " + std::string(codegen::name_of(i.op)));
  }
}

}  // namespace graft::cuda
