// Whole numbers and flags: exact where they are known, else as wide as the type.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/enclosure.h"

namespace graft::codegen {
namespace {

using ir::DType;

int64_t wrapping(Op op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == Op::add ? x + y : op == Op::sub ? x - y : x * y);
}

bool overflows(Op op, int64_t a, int64_t b, int64_t& result) {
  return op == Op::add   ? __builtin_add_overflow(a, b, &result)
         : op == Op::sub ? __builtin_sub_overflow(a, b, &result)
                         : __builtin_mul_overflow(a, b, &result);
}

template <Op op>
Whole arithmetic(DType dtype, const Whole& a, const Whole& b) {
  if (a.is_point() && b.is_point()) return Whole::exactly(wrapped(dtype, wrapping(op, a.low, b.low)));
  Whole made{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (const int64_t x : {a.low, a.high})
    for (const int64_t y : {b.low, b.high}) {
      int64_t corner = 0;
      if (overflows(op, x, y, corner) || !Whole::anything(dtype).allows(corner))
        return Whole::anything(dtype);
      made.low = std::min(made.low, corner);
      made.high = std::max(made.high, corner);
    }
  return made;
}

Whole neg(DType dtype, const Whole& x) { return arithmetic<Op::sub>(dtype, Whole::exactly(0), x); }

Whole abs(DType dtype, const Whole& x) {
  if (dtype == DType::u8 || dtype == DType::boolean || x.low >= 0) return x;
  const auto turned = neg(dtype, x);
  if (x.high <= 0) return turned;
  return x.low == Whole::anything(dtype).low ? Whole::anything(dtype)
                                             : Whole{0, std::max(x.high, turned.high)};
}

Whole sign(DType, const Whole& x) {
  const auto of = [](int64_t v) { return static_cast<int64_t>(v > 0) - static_cast<int64_t>(v < 0); };
  return {of(x.low), of(x.high)};
}

Whole bitwise_not(DType dtype, const Whole& x) {
  if (dtype == DType::boolean) return {1 - x.high, 1 - x.low};
  return dtype == DType::u8 ? Whole{255 - x.high, 255 - x.low} : Whole{~x.high, ~x.low};
}

Whole maximum(DType, const Whole& a, const Whole& b) {
  return {std::max(a.low, b.low), std::max(a.high, b.high)};
}
Whole minimum(DType, const Whole& a, const Whole& b) {
  return {std::min(a.low, b.low), std::min(a.high, b.high)};
}

template <Op op>
Whole bitwise(DType dtype, const Whole& a, const Whole& b) {
  const auto of = [](int64_t x, int64_t y) {
    return op == Op::bitwise_and ? x & y : op == Op::bitwise_or ? x | y : x ^ y;
  };
  if (a.is_point() && b.is_point()) return Whole::exactly(of(a.low, b.low));
  if (dtype == DType::boolean && op != Op::bitwise_xor) return {of(a.low, b.low), of(a.high, b.high)};
  return Whole::anything(dtype);
}

// By a number that is known, and is neither 0 nor, of a signed type, -1.
Whole div(DType dtype, const Whole& a, const Whole& b) {
  if (!b.is_point() || b.low == 0 || b.low == -1) return Whole::anything(dtype);
  const int64_t x = a.low / b.low, y = a.high / b.low;
  return {std::min(x, y), std::max(x, y)};
}
Whole fmod(DType dtype, const Whole& a, const Whole& b) {
  if (!b.is_point() || b.low == 0 || b.low == -1) return Whole::anything(dtype);
  if (a.is_point()) return Whole::exactly(a.low % b.low);
  const int64_t most = b.low > 0 ? b.low - 1 : -(b.low + 1);
  return {a.low < 0 ? -most : 0, a.high > 0 ? most : 0};
}

template <Op op>
Whole shift(DType dtype, const Whole& a, const Whole& b) {
  if (!a.is_point() || !b.is_point()) return Whole::anything(dtype);
  const bool is_signed = dtype != DType::u8;
  const auto bits = static_cast<int64_t>(8 * ir::size_of(dtype));
  const int64_t most = op == Op::shift_right && is_signed ? bits - 1 : bits;
  const bool fits = b.low >= 0 && b.low < most;
  if (op == Op::shift_right) return Whole::exactly(a.low >> (fits ? b.low : std::min<int64_t>(most, 63)));
  return Whole::exactly(fits ? wrapped(dtype, static_cast<int64_t>(static_cast<uint64_t>(a.low) << b.low))
                             : 0);
}

constexpr Whole no{0, 0}, yes{1, 1}, either{0, 1};
Whole opposite(const Whole& flag) { return {1 - flag.high, 1 - flag.low}; }

Whole lt(DType, const Whole& a, const Whole& b) {
  return a.high < b.low ? yes : a.low >= b.high ? no : either;
}
Whole gt(DType dtype, const Whole& a, const Whole& b) { return lt(dtype, b, a); }
Whole ge(DType dtype, const Whole& a, const Whole& b) { return opposite(lt(dtype, a, b)); }
Whole le(DType dtype, const Whole& a, const Whole& b) { return opposite(lt(dtype, b, a)); }
Whole eq(DType, const Whole& a, const Whole& b) {
  if (a.high < b.low || b.high < a.low) return no;
  return a.is_point() && b.is_point() ? yes : either;
}
Whole ne(DType dtype, const Whole& a, const Whole& b) { return opposite(eq(dtype, a, b)); }

}  // namespace

Whole Whole::anything(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return {0, 1};
    case DType::u8:
      return {0, 255};
    case DType::i8:
      return {-128, 127};
    case DType::i16:
      return {-32768, 32767};
    case DType::i32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

int64_t wrapped(DType dtype, int64_t x) {
  switch (dtype) {
    case DType::boolean:
      return x & 1;
    case DType::u8:
      return static_cast<uint8_t>(x);
    case DType::i8:
      return static_cast<int8_t>(x);
    case DType::i16:
      return static_cast<int16_t>(x);
    case DType::i32:
      return static_cast<int32_t>(x);
    default:
      return x;
  }
}

Whole hull(const Whole& a, const Whole& b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

Whole to_whole(DType dtype, const Real& x) {
  if (dtype == DType::boolean) {
    if (!x.has_numbers() || !x.holds(0)) return yes;
    return x.is_point() ? no : either;
  }
  // Machines differ in what they make of the rest.
  const double limit = dtype == DType::i64 ? 0x1p63 : 0x1p31;
  if (x.nan || x.low <= -limit || x.high >= limit) return Whole::anything(dtype);
  return to_whole(dtype, Whole{static_cast<int64_t>(x.low), static_cast<int64_t>(x.high)});
}

Whole to_whole(DType dtype, const Whole& x) {
  if (dtype == DType::boolean) {
    if (!x.allows(0)) return yes;
    return x.is_point() ? no : either;
  }
  const auto all = Whole::anything(dtype);
  if (all.allows(x.low) && all.allows(x.high)) return x;
  return x.is_point() ? Whole::exactly(wrapped(dtype, x.low)) : all;
}

WholeUnary whole_unary(Op op) {
  switch (op) {
    case Op::neg:
      return neg;
    case Op::abs:
      return abs;
    case Op::sign:
      return sign;
    case Op::logical_not:
    case Op::bitwise_not:
      return bitwise_not;
    default:
      return nullptr;
  }
}

WholeBinary whole_binary(Op op) {
  switch (op) {
    case Op::add:
      return arithmetic<Op::add>;
    case Op::sub:
      return arithmetic<Op::sub>;
    case Op::mul:
      return arithmetic<Op::mul>;
    case Op::maximum:
      return maximum;
    case Op::minimum:
      return minimum;
    case Op::logical_and:
    case Op::bitwise_and:
      return bitwise<Op::bitwise_and>;
    case Op::logical_or:
    case Op::bitwise_or:
      return bitwise<Op::bitwise_or>;
    case Op::logical_xor:
    case Op::bitwise_xor:
      return bitwise<Op::bitwise_xor>;
    case Op::div:
      return div;
    case Op::fmod:
      return fmod;
    case Op::shift_left:
      return shift<Op::shift_left>;
    case Op::shift_right:
      return shift<Op::shift_right>;
    case Op::eq:
      return eq;
    case Op::ne:
      return ne;
    case Op::lt:
      return lt;
    case Op::le:
      return le;
    case Op::gt:
      return gt;
    case Op::ge:
      return ge;
    default:
      return nullptr;
  }
}

}  // namespace graft::codegen
