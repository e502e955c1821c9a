#include "targets/cpu/arithmetic.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <limits>
#include <stdexcept>

#include "targets/cpu/lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

using codegen::Op;
using ir::DType;
using llvm::IRBuilderBase;
using llvm::Value;

bool is_signed(DType dtype) { return dtype != DType::u8 && dtype != DType::boolean; }

llvm::Type* shaped(llvm::Type* scalar, const Value* like) {
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType()))
    return llvm::FixedVectorType::get(scalar, vector->getNumElements());
  return scalar;
}

Value* cast(IRBuilderBase& b, DType from, DType to, Value* x) {
  if (from == to) return x;
  auto* scalar = register_type(b.getContext(), to);
  auto* type = shaped(scalar, x);
  const bool from_float = ir::is_floating(from), to_float = ir::is_floating(to);
  if (to == DType::boolean)
    return from_float ? b.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()))
                      : b.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
  if (from_float && to_float) return from == DType::f32 ? b.CreateFPExt(x, type) : b.CreateFPTrunc(x, type);
  if (from_float) return float_to_int(b, x, scalar, is_signed(to));
  if (to_float) return is_signed(from) ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
  return b.CreateIntCast(x, type, is_signed(from));
}

Value* sign(IRBuilderBase& b, DType dtype, Value* x) {
  auto* type = x->getType();
  auto* zero = llvm::Constant::getNullValue(type);
  if (ir::is_floating(dtype)) {
    // sign(NaN) is 0 in ATen's arithmetic of comparisons
    auto* positive = b.CreateUIToFP(b.CreateFCmpOGT(x, zero), type);
    return b.CreateFSub(positive, b.CreateUIToFP(b.CreateFCmpOLT(x, zero), type));
  }
  auto* positive = b.CreateZExt(is_signed(dtype) ? b.CreateICmpSGT(x, zero) : b.CreateICmpUGT(x, zero), type);
  if (!is_signed(dtype)) return positive;
  return b.CreateSub(positive, b.CreateZExt(b.CreateICmpSLT(x, zero), type));
}

Value* compare(IRBuilderBase& b, Op op, DType dtype, Value* x, Value* y) {
  using Predicate = llvm::CmpInst::Predicate;
  if (ir::is_floating(dtype)) {
    switch (op) {
      case Op::eq:
        return b.CreateFCmp(Predicate::FCMP_OEQ, x, y);
      case Op::ne:
        return b.CreateFCmp(Predicate::FCMP_UNE, x, y);
      case Op::lt:
        return b.CreateFCmp(Predicate::FCMP_OLT, x, y);
      case Op::le:
        return b.CreateFCmp(Predicate::FCMP_OLE, x, y);
      case Op::gt:
        return b.CreateFCmp(Predicate::FCMP_OGT, x, y);
      default:
        return b.CreateFCmp(Predicate::FCMP_OGE, x, y);
    }
  }
  const bool s = is_signed(dtype);
  switch (op) {
    case Op::eq:
      return b.CreateICmpEQ(x, y);
    case Op::ne:
      return b.CreateICmpNE(x, y);
    case Op::lt:
      return s ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
    case Op::le:
      return s ? b.CreateICmpSLE(x, y) : b.CreateICmpULE(x, y);
    case Op::gt:
      return s ? b.CreateICmpSGT(x, y) : b.CreateICmpUGT(x, y);
    default:
      return s ? b.CreateICmpSGE(x, y) : b.CreateICmpUGE(x, y);
  }
}

Value* extreme(IRBuilderBase& b, bool largest, DType dtype, Value* x, Value* y) {
  // NaN wins, as in ATen; aarch64 has an instruction for that, x86 has not.
  if (ir::is_floating(dtype)) {
    if (on_arm(b))
      return b.CreateBinaryIntrinsic(largest ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, x, y);
    // x86's own gives y if either is NaN. By name where it can be: the comparisons it is recognised by would
    // be drawn together with those for NaN, and y, the result so far, would wait for them.
    const auto own = [&](llvm::ArrayRef<Value*> v) -> Value* {
      constexpr int present_rounding = 4;
      const bool is_float = v[0]->getType()->getScalarType()->isFloatTy();
      const auto larger =
          is_float ? llvm::Intrinsic::x86_avx512_max_ps_512 : llvm::Intrinsic::x86_avx512_max_pd_512;
      const auto smaller =
          is_float ? llvm::Intrinsic::x86_avx512_min_ps_512 : llvm::Intrinsic::x86_avx512_min_pd_512;
      return b.CreateIntrinsic(largest ? larger : smaller, {}, {v[0], v[1], b.getInt32(present_rounding)});
    };
    auto* better = by_avx512_registers(b, {x, y}, own);
    if (!better) better = b.CreateSelect(largest ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
    return b.CreateSelect(b.CreateFCmpUNO(x, x), x, better);
  }
  if (dtype == DType::boolean) return largest ? b.CreateOr(x, y) : b.CreateAnd(x, y);
  const auto id = is_signed(dtype) ? (largest ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                                   : (largest ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
  return b.CreateBinaryIntrinsic(id, x, y);
}

Value* constant_like(Value* x, double number) { return llvm::ConstantFP::get(x->getType(), number); }

Value* float_unary(IRBuilderBase& b, Op op, Value* x) {
  switch (op) {
    case Op::neg:
      return b.CreateFNeg(x);
    case Op::abs:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case Op::floor:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case Op::ceil:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case Op::trunc:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case Op::round:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case Op::reciprocal:
      return b.CreateFDiv(constant_like(x, 1), x);
    case Op::is_nan:
      return b.CreateFCmpUNO(x, x);
    case Op::is_inf:
      return b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                             constant_like(x, std::numeric_limits<double>::infinity()));
    default:
      break;
  }
  if (const auto emitter = find_unary(codegen::name_of(op))) return emitter(b, x);
  throw std::logic_error("no code for " + std::string(codegen::name_of(op)));
}

Value* unary(IRBuilderBase& b, Op op, DType dtype, Value* x) {
  if (op == Op::sign) return sign(b, dtype, x);
  if (op == Op::logical_not || op == Op::bitwise_not) return b.CreateNot(x);
  if (ir::is_floating(dtype)) return float_unary(b, op, x);
  if (op == Op::neg) return b.CreateNeg(x);
  if (op == Op::abs)
    return is_signed(dtype) ? b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse()) : x;
  throw std::logic_error("no code for " + std::string(codegen::name_of(op)) + " of whole numbers");
}

/// Of whole numbers. What a shift by more bits than there are gives is the operator's to say, not the
/// machine's.
Value* shift(IRBuilderBase& b, Op op, DType dtype, Value* x, Value* by) {
  auto* type = x->getType();
  const bool keeps_sign = op == Op::shift_right && is_signed(dtype);
  const uint64_t bits = type->getScalarSizeInBits(), most = keeps_sign ? bits - 1 : bits;
  auto* zero = llvm::Constant::getNullValue(type);
  auto* fits = b.CreateICmpULT(by, llvm::ConstantInt::get(type, most));  // a negative one does not
  if (keeps_sign) return b.CreateAShr(x, b.CreateSelect(fits, by, llvm::ConstantInt::get(type, most)));
  by = b.CreateSelect(fits, by, zero);
  return b.CreateSelect(fits, op == Op::shift_left ? b.CreateShl(x, by) : b.CreateLShr(x, by), zero);
}

Value* binary(IRBuilderBase& b, Op op, DType dtype, Value* x, Value* y) {
  const bool real = ir::is_floating(dtype);
  switch (op) {
    case Op::add:
      return real ? b.CreateFAdd(x, y) : b.CreateAdd(x, y);
    case Op::sub:
      return real ? b.CreateFSub(x, y) : b.CreateSub(x, y);
    case Op::mul:
      return real ? b.CreateFMul(x, y) : b.CreateMul(x, y);
    case Op::div:
      return real ? b.CreateFDiv(x, y) : is_signed(dtype) ? b.CreateSDiv(x, y) : b.CreateUDiv(x, y);
    case Op::maximum:
      return extreme(b, true, dtype, x, y);
    case Op::minimum:
      return extreme(b, false, dtype, x, y);
    case Op::fmod:
      if (real) return find_binary("fmod")(b, x, y);
      return is_signed(dtype) ? b.CreateSRem(x, y) : b.CreateURem(x, y);
    case Op::shift_left:
    case Op::shift_right:
      return shift(b, op, dtype, x, y);
    case Op::copysign:
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, y);
    case Op::remainder: {
      // The sign of the divisor, as Python has it.
      auto* r = find_binary("fmod")(b, x, y);
      auto* zero = llvm::Constant::getNullValue(r->getType());
      auto* other_side = b.CreateXor(b.CreateFCmpOLT(r, zero), b.CreateFCmpOLT(y, zero));
      return b.CreateSelect(b.CreateAnd(b.CreateFCmpUNE(r, zero), other_side), b.CreateFAdd(r, y), r);
    }
    case Op::pow:
      return emit_pow(b, x, y);
    case Op::logical_and:
    case Op::bitwise_and:
      return b.CreateAnd(x, y);
    case Op::logical_or:
    case Op::bitwise_or:
      return b.CreateOr(x, y);
    case Op::logical_xor:
    case Op::bitwise_xor:
      return b.CreateXor(x, y);
    default:
      return compare(b, op, dtype, x, y);
  }
}

/// What a reduction does with each element.
Op step_of(Op reduction) {
  switch (reduction) {
    case Op::reduce_sum:
      return Op::add;
    case Op::reduce_prod:
      return Op::mul;
    case Op::reduce_max:
      return Op::maximum;
    case Op::reduce_min:
      return Op::minimum;
    case Op::reduce_any:
      return Op::logical_or;
    default:
      return Op::logical_and;
  }
}

}  // namespace

llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return llvm::Type::getDoubleTy(context);
    case DType::f32:
      return llvm::Type::getFloatTy(context);
    case DType::boolean:
      return llvm::Type::getInt8Ty(context);
    default:
      return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * ir::size_of(dtype)));
  }
}

llvm::Type* register_type(llvm::LLVMContext& context, DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return llvm::Type::getFloatTy(context);
  if (dtype == DType::boolean) return llvm::Type::getInt1Ty(context);
  return memory_type(context, dtype);
}

Value* to_register(IRBuilderBase& b, DType memory, Value* raw) {
  if (memory == DType::bf16) return bf16_to_f32(b, raw);
  if (memory == DType::f16) return f16_to_f32(b, raw);
  if (memory == DType::boolean) return b.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
  return raw;
}

Value* to_memory(IRBuilderBase& b, DType held, DType memory, Value* x) {
  if (memory == DType::bf16) return f32_to_bf16(b, cast(b, held, DType::f32, x));
  if (memory == DType::f16) return f32_to_f16(b, cast(b, held, DType::f32, x));
  x = cast(b, held, memory, x);
  if (memory == DType::boolean) return b.CreateZExt(x, shaped(b.getInt8Ty(), x));
  return x;
}

Value* bf16_bits(IRBuilderBase& b, Value* x) {
  auto* bits = b.CreateBitCast(x, shaped(b.getInt32Ty(), x));
  return b.CreateTrunc(b.CreateLShr(bits, 16), shaped(b.getInt16Ty(), x));
}

Value* compute(IRBuilderBase& b, Op op, DType dtype, const std::vector<DType>& from,
               const std::vector<Value*>& args) {
  switch (op) {
    case Op::cast:
      return cast(b, from[0], dtype, args[0]);
    case Op::round_half:
      return f16_to_f32(b, f32_to_f16(b, args[0]));
    case Op::round_bf16:
      return bf16_to_f32(b, f32_to_bf16(b, args[0]));
    case Op::select:
      return b.CreateSelect(args[0], args[1], args[2]);
    case Op::fma:
      return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {args[0]->getType()}, {args[0], args[1], args[2]});
    default:
      break;
  }
  return args.size() == 1 ? unary(b, op, from[0], args[0]) : binary(b, op, from[0], args[0], args[1]);
}

Value* reduction_identity(IRBuilderBase& b, Op op, DType dtype) {
  auto* type = register_type(b.getContext(), dtype);
  const bool real = ir::is_floating(dtype);
  const auto bits = type->getScalarSizeInBits();
  const auto lowest = [&](bool low) -> Value* {
    if (real) return llvm::ConstantFP::getInfinity(type, low);
    if (dtype == DType::boolean) return b.getInt1(!low);
    return llvm::ConstantInt::get(
        type, is_signed(dtype)
                  ? (low ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits))
                  : (low ? llvm::APInt::getMinValue(bits) : llvm::APInt::getMaxValue(bits)));
  };
  switch (op) {
    case Op::reduce_prod:
      return real ? static_cast<Value*>(llvm::ConstantFP::get(type, 1.0)) : llvm::ConstantInt::get(type, 1);
    case Op::reduce_max:
    case Op::reduce_argmax:
      return lowest(true);
    case Op::reduce_min:
    case Op::reduce_argmin:
      return lowest(false);
    case Op::reduce_all:
      return b.getTrue();
    default:
      return llvm::Constant::getNullValue(type);
  }
}

Value* combine(IRBuilderBase& b, Op op, DType dtype, Value* a, Value* x) {
  return binary(b, step_of(op), dtype, x, a);
}

Value* reduce_lanes(IRBuilderBase& b, Op op, DType dtype, Value* x) {
  // Halves onto each other: the error of a sum grows with the logarithm of the lanes.
  for (unsigned lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements(); lanes > 1;
       lanes /= 2) {
    std::vector<int> low, high;
    for (unsigned i = 0; i < lanes / 2; ++i)
      low.push_back(static_cast<int>(i)), high.push_back(static_cast<int>(i + lanes / 2));
    x = combine(b, op, dtype, b.CreateShuffleVector(x, low), b.CreateShuffleVector(x, high));
  }
  return b.CreateExtractElement(x, static_cast<uint64_t>(0));
}

Placed better(IRBuilderBase& b, Op op, DType dtype, Value* a, Value* a_place, Value* x, Value* x_place) {
  const bool largest = op == Op::reduce_argmax;
  Value* wins = compare(b, largest ? Op::gt : Op::lt, dtype, x, a);
  Value* equal = compare(b, Op::eq, dtype, x, a);
  if (ir::is_floating(dtype)) {
    auto* x_nan = b.CreateFCmpUNO(x, x);
    auto* a_nan = b.CreateFCmpUNO(a, a);
    wins = b.CreateOr(wins, b.CreateAnd(x_nan, b.CreateNot(a_nan)));
    equal = b.CreateOr(equal, b.CreateAnd(x_nan, a_nan));
  }
  // Loops do not always come by in the order of the places.
  wins = b.CreateOr(wins, b.CreateAnd(equal, b.CreateICmpSLT(x_place, a_place)));
  auto* none = llvm::Constant::getNullValue(a_place->getType());
  wins = b.CreateAnd(b.CreateOr(wins, b.CreateICmpSLT(a_place, none)), b.CreateICmpSGE(x_place, none));
  return {b.CreateSelect(wins, x, a), b.CreateSelect(wins, x_place, a_place)};
}

Placed best_lane(IRBuilderBase& b, Op op, DType dtype, Value* x, Value* places) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  Value* best = b.CreateExtractElement(x, static_cast<uint64_t>(0));
  Value* place = b.CreateExtractElement(places, static_cast<uint64_t>(0));
  for (unsigned i = 1; i < lanes; ++i)
    std::tie(best, place) =
        better(b, op, dtype, best, place, b.CreateExtractElement(x, static_cast<uint64_t>(i)),
               b.CreateExtractElement(places, static_cast<uint64_t>(i)));
  return {best, place};
}

}  // namespace graft::cpu
