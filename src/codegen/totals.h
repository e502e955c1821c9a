// What reductions may come to, in whatever order a machine takes their terms.
#pragma once
#include <vector>

#include "codegen/enclosure.h"

namespace graft::codegen {

/// A sum, product, largest or smallest of floating numbers. `count` terms may be added at once.
class RealTotal {
 public:
  /// `dtype` is what each step is rounded to. No term goes through more than `deepest` steps.
  RealTotal(Op op, ir::DType dtype, double deepest);
  void add(const Real& x, int64_t count = 1);
  Real result() const;

 private:
  Real sum() const;
  Real product() const;

  Op op_;
  ir::DType dtype_;
  double deepest_;
  /// A sum whose own rounding is that of a few steps, however many terms it has (Neumaier's).
  struct Sum {
    double sum = 0, lost = 0;
    void add(double x);
    double value() const;
  };
  Real value_;      // of all but sums; computed in double, in the order in which terms came
  Sum low_, high_;  // of sums
  bool nan_ = false, only_nan_ = false;
  double inexact_ = 0;                             // terms that may change what they are added to
  double positive_ = 0, negative_ = 0;             // sum: of all terms above, and below zero
  bool has_infinity_ = false, has_minus_ = false;  // for certain
  double grows_ = 0, shrinks_ = 0;                 // product: exponents of the factors above, and below one
  bool has_zero_ = false;
};

/// The same of whole numbers and flags: any order gives the same.
class WholeTotal {
 public:
  WholeTotal(Op op, ir::DType dtype);
  void add(const Whole& x, int64_t count = 1);
  Whole result() const { return value_; }

 private:
  Op op_;
  ir::DType dtype_;
  Whole value_;
};

/// The place of the largest or smallest: the first of equals, NaN before all numbers.
class BestPlace {
 public:
  explicit BestPlace(Op op) : largest_(op == Op::reduce_argmax) {}
  void add(const Real& x, const Whole& place);
  void add(const Whole& x, const Whole& place);
  Whole result() const;

 private:
  /// Of whole numbers as well: the order of larger ones than double holds is kept by `exact`.
  struct Candidate {
    Real value;
    Whole exact, place;
  };
  Whole best_of_numbers() const;
  bool largest_;
  std::vector<Candidate> all_;
};

}  // namespace graft::codegen
