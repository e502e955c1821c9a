// Operators of whole numbers as instructions: shifts, divisions by numbers that the graph knows, powers. A
// division by data stays a call: it is an error where there is a zero among them.
#include "codegen/enclosure.h"
#include "codegen/lower_math.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;

bool has_sign(DType dtype) { return dtype != DType::u8; }
bool is_whole(const Node& n) { return !floats(n) && n.output().type().dtype != DType::boolean; }

/// What is divided by, as the result's type holds it; nothing where that is data, or zero.
std::optional<int64_t> divisor_of(const Node& n) {
  const auto* other = ir::value_of(n, "other");
  const auto* number = other && other->producer() && other->producer()->op() == "graft::number"
                           ? ir::attribute_of(*other->producer(), "value")
                           : ir::attribute_of(n, "other");
  const auto* whole = number ? std::get_if<int64_t>(number) : nullptr;
  const int64_t divisor = whole ? wrapped(n.output().type().dtype, *whole) : 0;
  return divisor == 0 ? std::nullopt : std::optional(divisor);
}

enum class Division : uint8_t { truncated, floored, rest, rest_as_divisor };

/// The quotient, or what is left: with the dividend's sign, or the divisor's.
int divided(Lowering& l, const Node& n, const Place& p, Division what) {
  const Math m{l, out(n)};
  const int64_t divisor = *divisor_of(n);
  const int x = l.argument(n, "self", p, out(n)), zero = l.integer(out(n), 0);
  const bool quotient = what == Division::truncated || what == Division::floored;
  // The machine's own division has no result where the smallest number is divided by -1.
  if (divisor == 1 || (divisor == -1 && has_sign(out(n))))
    return !quotient ? zero : divisor == 1 ? x : m.neg(x);
  const int d = l.integer(out(n), divisor);
  if (what == Division::truncated) return m.div(x, d);
  const int rest = l.emit(Op::fmod, out(n), {x, d});
  if (what == Division::rest) return rest;
  const int other_side = m.is(divisor > 0 ? Op::lt : Op::gt, rest, zero);
  return what == Division::floored ? m.sub(m.div(x, d), l.cast(other_side, out(n)))
                                   : m.select(other_side, m.add(rest, d), rest);
}

/// By squaring: what does not fit is lost, as in every product.
int power(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  int square = l.argument(n, "self", p, out(n)), made = -1;
  for (int64_t left = *ir::int_of(n, "exponent"); left > 0; left /= 2) {
    if (left % 2) made = made < 0 ? square : m.mul(made, square);
    if (left > 1) square = m.mul(square, square);
  }
  return made < 0 ? l.integer(out(n), 1) : made;
}

Lower shift(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    return l.emit(op, out(n), {l.argument(n, "self", p, out(n)), l.argument(n, "other", p, out(n))});
  };
}

/// Beside what the operator has for floating numbers.
void add_beside(LowerTable& table, const std::string& name, const Lower& lower,
                const std::function<bool(const Node&)>& applies) {
  const auto floating = table.at(name).lower;
  table[name] = {[floating, lower](Lowering& l, const Node& n, const Place& p) {
                   return (floats(n) ? floating : lower)(l, n, p);
                 },
                 [applies](const Node& n) { return floats(n) || (is_whole(n) && applies(n)); }};
}

}  // namespace

void add_whole(LowerTable& table) {
  const auto has_divisor = [](const Node& n) { return divisor_of(n).has_value(); };
  const auto has_mode = [](const Node& n) {
    return divisor_of(n).has_value() && ir::string_of(n, "rounding_mode").has_value();
  };
  const auto division = [](Division what) {
    return [what](Lowering& l, const Node& n, const Place& p) { return divided(l, n, p, what); };
  };
  const auto by_mode = [](Lowering& l, const Node& n, const Place& p) {
    const bool floored = ir::string_of(n, "rounding_mode") == "floor";
    return divided(l, n, p, floored ? Division::floored : Division::truncated);
  };
  for (const char* kind : {".Tensor", ".Scalar"}) {
    const std::string k = kind;
    add_beside(table, "aten::div" + k + "_mode", by_mode, has_mode);
    add_beside(table, "aten::fmod" + k, division(Division::rest), has_divisor);
    add_beside(table, "aten::remainder" + k, division(Division::rest_as_divisor), has_divisor);
  }
  for (const char* name : {"aten::floor_divide", "aten::floor_divide.Scalar"})
    add_beside(table, name, division(Division::floored), has_divisor);
  add_beside(table, "aten::pow.Tensor_Scalar", power,
             [](const Node& n) { return ir::int_of(n, "exponent").value_or(-1) >= 0; });
  // Whole numbers are whole.
  for (const char* name : {"aten::floor", "aten::ceil", "aten::round", "aten::trunc"})
    add_beside(
        table, name,
        [](Lowering& l, const Node& n, const Place& p) { return l.argument(n, "self", p, out(n)); },
        [](const Node&) { return true; });
  for (const char* kind : {"bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar",
                           "bitwise_left_shift.Scalar_Tensor", "__lshift__.Tensor", "__lshift__.Scalar"})
    table["aten::" + std::string(kind)] = {shift(Op::shift_left), is_whole};
  for (const char* kind : {"bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar",
                           "bitwise_right_shift.Scalar_Tensor", "__rshift__.Tensor", "__rshift__.Scalar"})
    table["aten::" + std::string(kind)] = {shift(Op::shift_right), is_whole};
}

}  // namespace graft::codegen
