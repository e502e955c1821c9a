// The instructions of a kernel.
#pragma once
#include <cstdint>
#include <string_view>

namespace graft::codegen {

enum class Op : uint8_t {
  constant,
  iota,
  load,
  store,
  cast,  // to the instruction's dtype
  round_half,
  round_bf16,  // a float to the nearest value of that type, still a float
  // of one value
  neg,
  abs,
  sign,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  sigmoid,
  erf,
  erfc,
  floor,
  ceil,
  round,
  trunc,
  logical_not,
  bitwise_not,
  is_nan,
  is_inf,
  // of two
  add,
  sub,
  mul,
  div,
  pow,
  maximum,
  minimum,
  fmod,
  remainder,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  shift_left,   // by a number of bits outside of 0 to the type's: nothing stays,
  shift_right,  // or the sign
  copysign,
  // of three
  select,  // flag ? a : b
  fma,     // a * b + c, rounded once or twice as the machine likes
  // of all points of a row up to this one, in their order
  scan_sum,
  scan_prod,
  // over the reduced dimensions
  reduce_sum,
  reduce_prod,
  reduce_max,
  reduce_min,
  reduce_any,
  reduce_all,
  reduce_argmax,
  reduce_argmin,
};

std::string_view name_of(Op op);
bool is_reduction(Op op);
bool is_scan(Op op);
/// Dear enough that computing it twice costs more than keeping the result.
bool is_expensive(Op op);

}  // namespace graft::codegen
