// The pointwise operators of ATen as instructions: arithmetic, comparison, activations and their derivatives.
#include <cmath>
#include <numbers>

#include "codegen/lower_math.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;

/// 0 flags, 1 whole numbers, 2 floating numbers.
int category(DType dtype) { return dtype == DType::boolean ? 0 : ir::is_floating(dtype) ? 2 : 1; }

/// The dtype in which two arguments meet, by torch's rules: tensors with dimensions count before those
/// without, those before numbers; a lower rank decides only if its category is higher. As stored: half types
/// are not widened.
DType common_dtype(const Node& node, std::string_view a, std::string_view b) {
  struct Seen {
    DType dtype;
    int priority;
  };
  std::vector<Seen> seen;
  for (const auto name : {a, b}) {
    if (const auto* value = ir::value_of(node, name)) {
      const bool number = value->producer() && value->producer()->op() == "graft::number";
      seen.push_back({value->type().dtype, number ? 0 : value->type().sizes.empty() ? 1 : 2});
    } else if (const auto* attribute = ir::attribute_of(node, name)) {
      seen.push_back({std::holds_alternative<bool>(*attribute)      ? DType::boolean
                      : std::holds_alternative<int64_t>(*attribute) ? DType::i64
                                                                    : DType::f32,
                      0});
    }
  }
  if (seen.size() == 1) return seen[0].dtype;
  const auto wider = [](DType x, DType y) {
    if (category(x) != category(y)) return category(x) > category(y) ? x : y;
    if (x == y) return x;
    if (category(x) == 2) {
      if (ir::size_of(x) == ir::size_of(y)) return DType::f32;  // float16 with bfloat16
      return ir::size_of(x) > ir::size_of(y) ? x : y;
    }
    if (ir::size_of(x) == ir::size_of(y)) return x == DType::u8 || y == DType::u8 ? DType::i16 : x;
    return ir::size_of(x) > ir::size_of(y) ? x : y;
  };
  const auto& [first, second] = std::pair(seen[0], seen[1]);
  if (first.priority == second.priority) return wider(first.dtype, second.dtype);
  const auto& high = first.priority > second.priority ? first : second;
  const auto& low = first.priority > second.priority ? second : first;
  return category(low.dtype) > category(high.dtype) ? low.dtype : high.dtype;
}

Lower unary(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    return l.emit(op, out(n), {l.argument(n, "self", p, out(n))});
  };
}

Lower binary(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    return l.emit(op, out(n), {l.argument(n, "self", p, out(n)), l.argument(n, "other", p, out(n))});
  };
}

Lower stepped_binary(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    return l.emit(op, out(n), {rounded_argument(l, n, "self", p), rounded_argument(l, n, "other", p)});
  };
}

Lower comparison(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    const auto dtype = common_dtype(n, "self", "other");
    // A number or a wider tensor meets a half one as a half: 0.1 is not 0.1 there.
    const auto side = [&](const char* name) {
      const auto* value = ir::value_of(n, name);
      const int x = l.stored_argument(n, name, p, in_register(dtype));
      return value && value->type().dtype == dtype ? x : l.convert(x, dtype);
    };
    return l.emit(op, DType::boolean, {side("self"), side("other")});
  };
}

int truth(Lowering& l, const Node& n, std::string_view name, const Place& p) {
  const auto* value = ir::value_of(n, name);
  const auto dtype = value ? in_register(value->type().dtype) : DType::boolean;
  const int x = l.stored_argument(n, name, p, dtype);
  return dtype == DType::boolean ? x : l.emit(Op::ne, DType::boolean, {x, l.integer(dtype, 0)});
}

Lower logical(Op op) {
  return [op](Lowering& l, const Node& n, const Place& p) {
    return l.emit(op, DType::boolean, {truth(l, n, "self", p), truth(l, n, "other", p)});
  };
}

/// An argument of a difference: rounded as eager code rounds it, where both sides must be the same number.
int term(Lowering& l, const Node& n, std::string_view name, const Place& p) {
  return ir::is_distance_from_own_mean(n) ? l.stored_argument(n, name, p, out(n))
                                          : l.argument(n, name, p, out(n));
}

int add_scaled(Lowering& l, const Node& n, const Place& p, bool negative) {
  const Math m{l, out(n)};
  const int a = term(l, n, "self", p);
  int b = term(l, n, "other", p);
  if (const auto alpha = ir::number_of(n, "alpha"); alpha && *alpha != 1)
    b = m.mul(b, l.constant(out(n), *alpha));
  return negative ? m.sub(a, b) : m.add(a, b);
}

int lower_pow(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const int x = l.argument(n, "self", p, out(n));
  const double e = *ir::number_of(n, "exponent");
  if (e == 0) return m(1);
  if (e == 1) return x;
  if (e == 2) return m.mul(x, x);
  if (e == 3) return m.mul(m.mul(x, x), x);
  // Not of float16, which ATen leaves to pow(): that of -inf is inf.
  const bool by_root = n.output().type().dtype != DType::f16;
  if (e == 0.5 && by_root) return m.of(Op::sqrt, x);
  if (e == -0.5 && by_root) return m.of(Op::rsqrt, x);
  if (e == -1) return m.of(Op::reciprocal, x);
  if (e == -2) return m.of(Op::reciprocal, m.mul(x, x));
  return l.emit(Op::pow, out(n), {x, rounded_argument(l, n, "exponent", p)});
}

int gelu(const Math& m, const Node& n, int x) {
  if (ir::string_of(n, "approximate") == "tanh") {
    const double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    const int inner = m.mul(m(k), m.add(x, m.mul(m(0.044715), m.mul(m.mul(x, x), x))));
    return m.mul(m.mul(m(0.5), x), m.add(m(1), m.of(Op::tanh, inner)));
  }
  return m.mul(m.mul(x, m(0.5)), m.add(m(1), m.of(Op::erf, m.mul(x, m(1 / std::numbers::sqrt2)))));
}

int gelu_backward(const Math& m, const Node& n, int g, int x) {
  if (ir::string_of(n, "approximate") == "tanh") {
    const double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    const int x2 = m.mul(x, x);
    const int t = m.of(Op::tanh, m.mul(m(k), m.add(x, m.mul(m(0.044715), m.mul(x2, x)))));
    const int left = m.mul(m(0.5), m.add(m(1), t));
    const int inner = m.mul(m(k), m.add(m(1), m.mul(m(3 * 0.044715), x2)));
    const int right = m.mul(m.mul(m(0.5), x), m.mul(m.sub(m(1), m.mul(t, t)), inner));
    return m.mul(g, m.add(left, right));
  }
  const int cdf = m.mul(m(0.5), m.add(m(1), m.of(Op::erf, m.mul(x, m(1 / std::numbers::sqrt2)))));
  const int pdf =
      m.mul(m(std::numbers::inv_sqrtpi / std::numbers::sqrt2), m.of(Op::exp, m.mul(m(-0.5), m.mul(x, x))));
  return m.mul(g, m.add(cdf, m.mul(x, pdf)));
}

int silu_backward(const Math& m, const Node&, int g, int x) {
  const int s = m.of(Op::sigmoid, x);
  return m.mul(m.mul(g, s), m.add(m(1), m.mul(x, m.sub(m(1), s))));
}

int elu(const Math& m, const Node& n, int x) {
  const double alpha = scalar(n, "alpha", 1), scale = scalar(n, "scale", 1),
               input = scalar(n, "input_scale", 1);
  const int low = m.mul(m(alpha * scale), m.of(Op::expm1, m.mul(x, m(input))));
  return m.select(m.is(Op::le, x, m(0)), low, m.mul(x, m(scale)));
}

int elu_backward(const Math& m, const Node& n, int g, int x) {
  const double alpha = scalar(n, "alpha", 1), scale = scalar(n, "scale", 1),
               input = scalar(n, "input_scale", 1);
  const int low = ir::bool_of(n, "is_result", false)
                      ? m.mul(m(input), m.add(x, m(alpha * scale)))
                      : m.mul(m(input * alpha * scale), m.of(Op::exp, m.mul(x, m(input))));
  return m.mul(g, m.select(m.is(Op::gt, x, m(0)), m(scale), low));  // NaN stays NaN
}

int softplus(const Math& m, const Node& n, int x) {
  const double beta = scalar(n, "beta", 1);
  const int scaled = m.mul(x, m(beta));
  return m.select(m.is(Op::gt, scaled, m(scalar(n, "threshold", 20))), x,
                  m.div(m.of(Op::log1p, m.of(Op::exp, scaled)), m(beta)));
}

int clamp(Lowering& l, const Node& n, const Place& p) {
  int x = l.argument(n, "self", p, out(n));
  if (n.argument("min") && (ir::value_of(n, "min") || ir::is_number(n, "min")))
    x = l.emit(Op::maximum, out(n), {x, l.argument(n, "min", p, out(n))});
  if (n.argument("max") && (ir::value_of(n, "max") || ir::is_number(n, "max")))
    x = l.emit(Op::minimum, out(n), {x, l.argument(n, "max", p, out(n))});
  return x;
}

int where(Lowering& l, const Node& n, const Place& p) {
  return l.emit(
      Op::select, out(n),
      {truth(l, n, "condition", p), l.argument(n, "self", p, out(n)), l.argument(n, "other", p, out(n))});
}

int gate_put(Lowering& l, const Node& n, const Place& p) {
  return l.emit(Op::select, out(n),
                {truth(l, n, "mask", p), l.argument(n, "made", p, out(n)), l.argument(n, "old", p, out(n))});
}

int gate_keep(Lowering& l, const Node& n, const Place& p) {
  return l.emit(Op::select, out(n),
                {truth(l, n, "mask", p), l.argument(n, "value", p, out(n)), l.integer(out(n), 0)});
}

int masked_fill(Lowering& l, const Node& n, const Place& p) {
  return l.emit(
      Op::select, out(n),
      {truth(l, n, "mask", p), l.argument(n, "value", p, out(n)), l.argument(n, "self", p, out(n))});
}

int addc(Lowering& l, const Node& n, const Place& p, Op op) {
  const Math m{l, out(n)};
  const int product =
      l.emit(op, out(n), {l.argument(n, "tensor1", p, out(n)), l.argument(n, "tensor2", p, out(n))});
  return m.add(l.argument(n, "self", p, out(n)), m.mul(m(scalar(n, "value", 1)), product));
}

int lerp(Lowering& l, const Node& n, const Place& p) {
  // As torch: from the nearer end.
  const Math m{l, out(n)};
  const int a = l.argument(n, "self", p, out(n)), b = l.argument(n, "end", p, out(n));
  const int w = l.argument(n, "weight", p, out(n));
  const int d = m.sub(b, a);
  return m.select(m.is(Op::lt, m.of(Op::abs, w), m(0.5)), m.add(a, m.mul(w, d)),
                  m.sub(b, m.mul(d, m.sub(m(1), w))));
}

int copy(Lowering& l, const Node& n, const Place& p) {
  const auto& from = *ir::value_of(n, n.argument("src") ? "src" : "self");
  const auto to = n.output().type().dtype;
  int x = n.argument("src") ? l.argument(n, "src", p, in_register(from.type().dtype)) : l.evaluate(from, p);
  if (!ir::is_floating(to)) x = l.as_stored(x, from.type().dtype);
  return from.type().dtype == to ? x : l.convert(x, to);
}

int rsub(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  int a = term(l, n, "self", p);
  if (const auto alpha = ir::number_of(n, "alpha"); alpha && *alpha != 1) a = m.mul(a, m(*alpha));
  return m.sub(term(l, n, "other", p), a);
}

bool div_is_plain(const Node& n) { return floats(n); }

/// As torch: from the remainder, so that 1 / 0.1 rounded down is 9 (0.1 is a little more than a tenth).
int floor_div(const Math& m, int a, int b) {
  const int plain = m.div(a, b);
  const int rest = m.l.emit(Op::fmod, m.dtype, {a, b});
  const int exact = m.div(m.sub(a, rest), b);
  const int sides =
      m.l.emit(Op::logical_xor, DType::boolean, {m.is(Op::lt, b, m(0)), m.is(Op::lt, rest, m(0))});
  const int below = m.l.emit(Op::logical_and, DType::boolean, {m.is(Op::ne, rest, m(0)), sides});
  const int q = m.select(below, m.sub(exact, m(1)), exact);
  const int low = m.of(Op::floor, q);
  const int rounded = m.select(m.is(Op::gt, m.sub(q, low), m(0.5)), m.add(low, m(1)), low);
  return m.select(m.is(Op::eq, b, m(0)), plain, rounded);
}

int rounded_div(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const int a = l.stored_argument(n, "self", p, out(n)), b = l.stored_argument(n, "other", p, out(n));
  const auto mode = ir::string_of(n, "rounding_mode");
  if (!mode) return m.div(a, b);
  return *mode == "floor" ? floor_div(m, a, b) : m.of(Op::trunc, m.div(a, b));
}

int dropout_backward(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  return m.mul(m.mul(l.argument(n, "grad_output", p, out(n)), l.argument(n, "mask", p, out(n))),
               m(scalar(n, "scale", 1)));
}

}  // namespace

void add_pointwise(LowerTable& table) {
  const std::pair<const char*, Op> float_unary[] = {
      {"aten::exp", Op::exp},         {"aten::exp2", Op::exp2},
      {"aten::expm1", Op::expm1},     {"aten::log", Op::log},
      {"aten::log2", Op::log2},       {"aten::log10", Op::log10},
      {"aten::log1p", Op::log1p},     {"aten::sin", Op::sin},
      {"aten::cos", Op::cos},         {"aten::tan", Op::tan},
      {"aten::asin", Op::asin},       {"aten::acos", Op::acos},
      {"aten::atan", Op::atan},       {"aten::sinh", Op::sinh},
      {"aten::cosh", Op::cosh},       {"aten::tanh", Op::tanh},
      {"aten::sigmoid", Op::sigmoid}, {"aten::erf", Op::erf},
      {"aten::erfc", Op::erfc},       {"aten::sqrt", Op::sqrt},
      {"aten::rsqrt", Op::rsqrt},     {"aten::reciprocal", Op::reciprocal}};
  for (const auto& [name, op] : float_unary) table[name] = {unary(op), floats};
  const auto no_flags = [](const Node& n) { return n.output().type().dtype != DType::boolean; };
  table["aten::neg"] = {unary(Op::neg), no_flags};
  table["aten::abs"] = {unary(Op::abs), no_flags};
  table["aten::sign"] = {stepped(Op::sign), no_flags};
  const std::pair<const char*, Op> roundings[] = {{"aten::floor", Op::floor},
                                                  {"aten::ceil", Op::ceil},
                                                  {"aten::round", Op::round},
                                                  {"aten::trunc", Op::trunc}};
  for (const auto& [name, op] : roundings) table[name] = {stepped(op), floats};

  const std::pair<const char*, Op> comparisons[] = {{"eq", Op::eq}, {"ne", Op::ne}, {"lt", Op::lt},
                                                    {"le", Op::le}, {"gt", Op::gt}, {"ge", Op::ge}};
  for (const auto& [name, op] : comparisons)
    for (const char* kind : {".Tensor", ".Scalar"})
      table["aten::" + std::string(name) + kind] = {comparison(op)};
  for (const char* kind : {".Tensor", ".Scalar"}) {
    const std::string k = kind;
    table["aten::add" + k] = {
        [](Lowering& l, const Node& n, const Place& p) { return add_scaled(l, n, p, false); }, no_flags};
    table["aten::sub" + k] = {
        [](Lowering& l, const Node& n, const Place& p) { return add_scaled(l, n, p, true); }, no_flags};
    table["aten::rsub" + k] = {rsub, no_flags};
    table["aten::mul" + k] = {[](Lowering& l, const Node& n, const Place& p) {
      return n.output().type().dtype == DType::boolean ? logical(Op::logical_and)(l, n, p)
                                                       : binary(Op::mul)(l, n, p);
    }};
    table["aten::div" + k] = {binary(Op::div), div_is_plain};
    table["aten::div" + k + "_mode"] = {rounded_div, floats};
    table["aten::fmod" + k] = {stepped_binary(Op::fmod), floats};
    table["aten::remainder" + k] = {stepped_binary(Op::remainder), floats};
    table["aten::bitwise_and" + k] = {binary(Op::bitwise_and)};
    table["aten::bitwise_or" + k] = {binary(Op::bitwise_or)};
    table["aten::bitwise_xor" + k] = {binary(Op::bitwise_xor)};
    table["aten::masked_fill" + k] = {masked_fill};
    table["aten::lerp" + k] = {lerp, floats};
  }
  table["aten::masked_fill.Scalar"] = {masked_fill};
  table["aten::maximum"] = {binary(Op::maximum)};
  table["aten::minimum"] = {binary(Op::minimum)};
  table["aten::logical_and"] = {logical(Op::logical_and)};
  table["aten::logical_or"] = {logical(Op::logical_or)};
  table["aten::logical_xor"] = {logical(Op::logical_xor)};
  table["aten::logical_not"] = {[](Lowering& l, const Node& n, const Place& p) {
    return l.emit(Op::logical_not, DType::boolean, {truth(l, n, "self", p)});
  }};
  table["aten::bitwise_not"] = {[](Lowering& l, const Node& n, const Place& p) {
    return l.emit(out(n) == DType::boolean ? Op::logical_not : Op::bitwise_not, out(n),
                  {l.argument(n, "self", p, out(n))});
  }};
  for (const auto& [name, op] : {std::pair("aten::isnan", Op::is_nan), {"aten::isinf", Op::is_inf}})
    table[name] = {[op = op](Lowering& l, const Node& n, const Place& p) {
                     const auto& self = *ir::value_of(n, "self");
                     return l.emit(op, DType::boolean, {l.as_stored(l.evaluate(self, p), self.type().dtype)});
                   },
                   [](const Node& n) { return ir::is_floating(ir::value_of(n, "self")->type().dtype); }};

  table["aten::pow.Tensor_Scalar"] = {lower_pow, floats};
  table["aten::pow.Tensor_Tensor"] = {
      [](Lowering& l, const Node& n, const Place& p) {
        return l.emit(Op::pow, out(n),
                      {l.argument(n, "self", p, out(n)), l.argument(n, "exponent", p, out(n))});
      },
      floats};
  table["aten::square"] = {formula([](const Math& m, const Node&, int x) { return m.mul(x, x); })};
  table["aten::clamp"] = {clamp};
  table["aten::clamp.Tensor"] = {clamp};
  for (const char* name :
       {"aten::clamp_min", "aten::clamp_max", "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"})
    table[name] = {clamp};
  table["graft::gate_put"] = {gate_put};
  table["graft::gate_keep"] = {gate_keep};
  table["aten::where.self"] = {where};
  table["aten::where.ScalarOther"] = {where};
  table["aten::where.ScalarSelf"] = {where};
  table["aten::where.Scalar"] = {where};
  table["aten::floor_divide"] = {[](Lowering& l, const Node& n, const Place& p) {
                                   return floor_div(Math{l, out(n)}, rounded_argument(l, n, "self", p),
                                                    rounded_argument(l, n, "other", p));
                                 },
                                 floats};
  table["aten::floor_divide.Scalar"] = table["aten::floor_divide"];
  table["aten::addcmul"] = {[](Lowering& l, const Node& n, const Place& p) { return addc(l, n, p, Op::mul); },
                            floats};
  table["aten::addcdiv"] = {[](Lowering& l, const Node& n, const Place& p) { return addc(l, n, p, Op::div); },
                            floats};
  for (const char* name : {"aten::clone", "aten::_to_copy", "aten::copy", "aten::contiguous",
                           "aten::to.dtype", "aten::lift_fresh_copy"})
    table[name] = {copy};

  table["aten::relu"] = {
      formula([](const Math& m, const Node&, int x) { return m.max(x, m.l.integer(m.dtype, 0)); })};
  table["aten::gelu"] = {formula(gelu), floats};
  table["aten::silu"] = {
      formula([](const Math& m, const Node&, int x) { return m.mul(x, m.of(Op::sigmoid, x)); }), floats};
  table["aten::elu"] = {formula(elu), floats};
  table["aten::softplus"] = {formula(softplus), floats};
  table["aten::leaky_relu"] = {formula([](const Math& m, const Node& n, int x) {
                                 return m.select(m.is(Op::gt, x, m(0)), x,
                                                 m.mul(x, m(scalar(n, "negative_slope", 0.01))));
                               }),
                               floats};
  table["aten::hardtanh"] = {formula([](const Math& m, const Node& n, int x) {
                               return m.min(m.max(x, m(scalar(n, "min_val", -1))),
                                            m(scalar(n, "max_val", 1)));
                             }),
                             floats};
  const auto hard = [](const Math& m, int x) { return m.min(m.max(m.add(x, m(3)), m(0)), m(6)); };
  table["aten::hardsigmoid"] = {
      formula([hard](const Math& m, const Node&, int x) { return m.div(hard(m, x), m(6)); }), floats};
  table["aten::hardswish"] = {
      formula([hard](const Math& m, const Node&, int x) { return m.div(m.mul(x, hard(m, x)), m(6)); }),
      floats};
  table["aten::threshold"] = {formula([](const Math& m, const Node& n, int x) {
                                return m.select(m.is(Op::le, x, m(scalar(n, "threshold", 0))),
                                                m(scalar(n, "value", 0)), x);
                              }),
                              floats};

  table["aten::gelu_backward"] = {derivative("self", gelu_backward), floats};
  table["aten::silu_backward"] = {derivative("self", silu_backward), floats};
  table["aten::elu_backward"] = {derivative("self_or_result", elu_backward), floats};
  table["aten::tanh_backward"] = {
      derivative("output",
                 [](const Math& m, const Node&, int g, int y) { return m.mul(g, m.sub(m(1), m.mul(y, y))); }),
      floats};
  table["aten::sigmoid_backward"] = {
      derivative("output",
                 [](const Math& m, const Node&, int g, int y) { return m.mul(m.mul(g, m.sub(m(1), y)), y); }),
      floats};
  table["aten::threshold_backward"] = {
      derivative("self",
                 [](const Math& m, const Node& n, int g, int x) {
                   return m.select(m.is(Op::le, x, m(scalar(n, "threshold", 0))), m(0), g);
                 }),
      floats};
  table["aten::leaky_relu_backward"] = {
      derivative("self",
                 [](const Math& m, const Node& n, int g, int x) {
                   return m.select(m.is(Op::gt, x, m(0)), g, m.mul(g, m(scalar(n, "negative_slope", 0.01))));
                 }),
      floats};
  table["aten::hardtanh_backward"] = {derivative("self",
                                                 [](const Math& m, const Node& n, int g, int x) {
                                                   const int inside = m.l.emit(
                                                       Op::logical_and, DType::boolean,
                                                       {m.is(Op::gt, x, m(scalar(n, "min_val", -1))),
                                                        m.is(Op::lt, x, m(scalar(n, "max_val", 1)))});
                                                   return m.select(inside, g, m(0));
                                                 }),
                                      floats};
  table["aten::softplus_backward"] = {derivative("self",
                                                 [](const Math& m, const Node& n, int g, int x) {
                                                   const int z = m.mul(x, m(scalar(n, "beta", 1)));
                                                   return m.select(
                                                       m.is(Op::gt, z, m(scalar(n, "threshold", 20))), g,
                                                       m.mul(g, m.of(Op::sigmoid, z)));
                                                 }),
                                      floats};
  table["aten::native_dropout_backward"] = {dropout_backward, floats};
}

}  // namespace graft::codegen
