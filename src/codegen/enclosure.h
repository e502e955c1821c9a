// What a register may hold: all values that arithmetic gives which keeps its promises, as an interval.
//
// Compiled code and a reference never agree to the bit: elementary functions are right to a few units in the
// last place, sums have an order of their own, a product and a sum may be rounded once or twice. So the
// reference computes with intervals that hold every result that is allowed. What IEEE 754 fixes (sums,
// products, quotients, roots, conversions, comparisons) leaves a point a point, and is held to the bit.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/op.h"
#include "ir/type.h"

namespace graft::codegen {

/// Of a floating type: a number from `low` to `high`, both may be infinite, or NaN where `nan` says so. With
/// low > high there is no number, only NaN. The sign of a zero is not known.
struct Real {
  double low = 0, high = 0;
  bool nan = false;

  static Real exactly(double x);
  static Real anything();
  static Real only_nan();
  bool has_numbers() const { return low <= high; }
  bool is_point() const { return low == high && !nan; }
  bool holds(double x) const { return low <= x && x <= high; }
  bool allows(double x) const { return x == x ? holds(x) : nan; }
};

/// Of a whole number or a flag. uint8 is 0 to 255.
struct Whole {
  int64_t low = 0, high = 0;

  static Whole exactly(int64_t x) { return {x, x}; }
  static Whole anything(ir::DType dtype);
  bool is_point() const { return low == high; }
  bool allows(int64_t x) const { return low <= x && x <= high; }
};

/// The nearest number of the type, ties to even.
double nearest(ir::DType dtype, double x);
/// The low bits, as the type reads them.
int64_t wrapped(ir::DType dtype, int64_t x);

Real hull(const Real& a, const Real& b);
Whole hull(const Whole& a, const Whole& b);
Real rounded(ir::DType dtype, const Real& x);

/// Conversions to a dtype. Floating numbers that do not fit a whole one become any.
Real to_real(ir::DType dtype, const Whole& x);
Whole to_whole(ir::DType dtype, const Real& x);
Whole to_whole(ir::DType dtype, const Whole& x);

/// One operator at one point, `dtype` that of its arguments in registers. Null for an operator that there is
/// not for such arguments.
using RealUnary = Real (*)(ir::DType, const Real&);
using RealBinary = Real (*)(ir::DType, const Real&, const Real&);
using WholeUnary = Whole (*)(ir::DType, const Whole&);
using WholeBinary = Whole (*)(ir::DType, const Whole&, const Whole&);
using RealTest = Whole (*)(const Real&);
using RealComparison = Whole (*)(const Real&, const Real&);
RealUnary real_unary(Op op);
RealBinary real_binary(Op op);
WholeUnary whole_unary(Op op);
WholeBinary whole_binary(Op op);
RealTest real_test(Op op);
RealComparison real_comparison(Op op);

Real fused(ir::DType dtype, const Real& a, const Real& b, const Real& c);

}  // namespace graft::codegen
