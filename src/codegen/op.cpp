#include "codegen/op.h"

#include <array>

namespace graft::codegen {
namespace {

constexpr std::array names = {"constant",     "iota",        "load",        "store",       "cast",
                              "round_half",   "round_bf16",  "neg",         "abs",         "sign",
                              "sqrt",         "rsqrt",       "reciprocal",  "exp",         "exp2",
                              "expm1",        "log",         "log2",        "log10",       "log1p",
                              "sin",          "cos",         "tan",         "asin",        "acos",
                              "atan",         "sinh",        "cosh",        "tanh",        "sigmoid",
                              "erf",          "erfc",        "floor",       "ceil",        "round",
                              "trunc",        "logical_not", "bitwise_not", "is_nan",      "is_inf",
                              "add",          "sub",         "mul",         "div",         "pow",
                              "maximum",      "minimum",     "fmod",        "remainder",   "eq",
                              "ne",           "lt",          "le",          "gt",          "ge",
                              "logical_and",  "logical_or",  "logical_xor", "bitwise_and", "bitwise_or",
                              "bitwise_xor",  "shift_left",  "shift_right", "copysign",    "select",
                              "fma",          "scan_sum",    "scan_prod",   "reduce_sum",  "reduce_prod",
                              "reduce_max",   "reduce_min",  "reduce_any",  "reduce_all",  "reduce_argmax",
                              "reduce_argmin"};
static_assert(names.size() == static_cast<size_t>(Op::reduce_argmin) + 1);

}  // namespace

std::string_view name_of(Op op) { return names[static_cast<size_t>(op)]; }
bool is_reduction(Op op) { return op >= Op::reduce_sum; }
bool is_scan(Op op) { return op == Op::scan_sum || op == Op::scan_prod; }

bool is_expensive(Op op) {
  switch (op) {
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
    case Op::sigmoid:
    case Op::erf:
    case Op::erfc:
    case Op::pow:
    case Op::fmod:
    case Op::remainder:  // is made of the one before
      return true;
    default:
      return false;
  }
}

}  // namespace graft::codegen
