// Arithmetic on vectors of numbers, written as arithmetic: `fma(n, -kLn2, x)` appends LLVM instructions to a
// builder. For the files of vector_math alone.
//
// Lanes is where instructions go and how wide the vectors are; Float, Int and Mask are values of that width,
// or scalars where the width is one. A plain number beside them stands for the same number in all lanes.
#pragma once
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>

#include <string_view>

namespace graft::cpu {

class Lanes;

struct Mask {
  Lanes* at;
  llvm::Value* value;
};

/// Integers as wide as the floats beside them: i32 for float, i64 for double.
struct Int {
  Lanes* at;
  llvm::Value* value;
};

struct Float {
  Lanes* at;
  llvm::Value* value;
};

/// A vector or a number.
struct Number {
  Number(Float x) : lanes(x.at), value(x.value) {}
  Number(double x) : number(x) {}
  Lanes* lanes = nullptr;
  llvm::Value* value = nullptr;
  double number = 0;
};

class Lanes {
 public:
  /// `type` is float, double or a vector of one of them. The builder's fast-math flags are off while this
  /// lives: the formulas rely on every rounding.
  Lanes(llvm::IRBuilderBase& builder, llvm::Type* type);

  Float of(llvm::Value* x) { return {this, x}; }
  llvm::Value* value(const Number& x);
  Int integer(int64_t x);
  bool is_float() const { return float_type->getScalarType()->isFloatTy(); }
  /// Doubles need fma: without it their formulas would be others, and machines without are not worth those.
  bool by_library() const { return !is_float() && !fused; }

  /// What differs between the two formats.
  template <class T>
  T pick(T of_float, T of_double) const {
    return is_float() ? of_float : of_double;
  }
  int fraction_bits() const { return pick(23, 52); }
  int bias() const { return pick(127, 1023); }
  /// The number's representation, as a number of int_type.
  int64_t bits_of(double x) const;
  int64_t sign_bit() const { return bits_of(-0.0); }
  int64_t fraction_mask() const { return (int64_t{1} << fraction_bits()) - 1; }
  /// Adding 1.5 * 2^fraction_bits to a number that is small beside it rounds it to an integer, which then
  /// stands in the low bits of the sum, in two's complement; shifted up by fraction_bits it is an exponent.
  double shifter() const { return pick(0x1.8p23, 0x1.8p52); }

  llvm::IRBuilderBase& b;
  llvm::Type* float_type;
  llvm::Type* int_type;
  bool arm;
  bool fused;  // there is an instruction for fma

 private:
  llvm::IRBuilderBase::FastMathFlagGuard guard_;
};

/// What the builder's function says it may use: "fma", "f16c". See set_target() in jit.h.
bool has_feature(const llvm::IRBuilderBase& builder, std::string_view feature);
bool on_arm(const llvm::IRBuilderBase& builder);
/// `body` on the registers of 16 floats or 8 doubles that the vectors are made of, where those are AVX-512's;
/// null where they are not.
llvm::Value* by_avx512_registers(llvm::IRBuilderBase& builder, llvm::ArrayRef<llvm::Value*> vectors,
                                 llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> body);
/// The lanes' number of elements, 1 for a scalar type.
unsigned lanes_of(llvm::Type* type);
/// `scalar`, or as many of them as `like` has.
llvm::Type* widened(llvm::Type* scalar, llvm::Type* like);

Float operator+(Number x, Number y);
Float operator-(Number x, Number y);
Float operator*(Number x, Number y);
Float operator/(Number x, Number y);
Float operator-(Float x);
Mask operator<(Float x, Number y);  // false where either is NaN, and so are the next five
Mask operator>(Float x, Number y);
Mask operator<=(Float x, Number y);
Mask operator>=(Float x, Number y);
Mask operator==(Float x, double y);
Mask operator==(Float x, Float y);
Mask is_nan(Float x);

/// x * y + z, rounded once where the machine can; twice (by mul and add) where it cannot.
Float fma(Number x, Number y, Number z);
Float abs(Float x);
Float sqrt(Float x);
Float copysign(Number size, Float sign);
/// The smaller of x and limit, NaN where x is NaN.
Float at_most(Float x, double limit);
Float at_least(Float x, double limit);
/// To the nearest integer, ties to even.
Float round(Float x);
/// Coefficients lowest power first. Taken in pairs, as a polynomial in x^2: a shorter chain than Horner's,
/// and fewer copies of constants on aarch64, whose fma overwrites its addend. Its error is about an ulp of
/// the first coefficient, so what must be exact is added by the caller.
Float polynomial(Float x, llvm::ArrayRef<double> coefficients);
/// The one of the two that is for x's format.
Float polynomial(Float x, llvm::ArrayRef<double> of_float, llvm::ArrayRef<double> of_double);

Int bits(Float x);
Float from_bits(Int x);
Float to_float(Int x);
Int operator+(Int x, Int y);
Int operator-(Int x, Int y);
Int operator&(Int x, Int y);
Int operator|(Int x, Int y);
Int operator^(Int x, Int y);
Int operator+(Int x, int64_t y);
Int operator-(Int x, int64_t y);
Int operator&(Int x, int64_t y);
Int operator<<(Int x, int y);
Int operator>>(Int x, int y);  // keeps the sign
/// Shifted down, with zeros from above.
Int high_bits(Int x, int shift);
Mask operator==(Int x, int64_t y);
Mask operator!=(Int x, int64_t y);

Mask operator&(Mask x, Mask y);
Mask operator|(Mask x, Mask y);
Mask operator!(Mask x);
Float select(Mask mask, Number yes, Number no);
Int select(Mask mask, Int yes, Int no);

}  // namespace graft::cpu
