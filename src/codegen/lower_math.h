// What formulas of one element are written with, for the tables of pointwise operators.
#pragma once
#include <functional>
#include <string_view>

#include "codegen/lower_tables.h"
#include "ir/arguments.h"

namespace graft::codegen {

inline bool floats(const ir::Node& node) { return ir::is_floating(node.output().type().dtype); }

/// A builder of expressions in one dtype.
struct Math {
  Lowering& l;
  ir::DType dtype;
  int operator()(double number) const { return l.constant(dtype, number); }
  int add(int a, int b) const { return l.emit(Op::add, dtype, {a, b}); }
  int sub(int a, int b) const { return l.emit(Op::sub, dtype, {a, b}); }
  int mul(int a, int b) const { return l.emit(Op::mul, dtype, {a, b}); }
  int div(int a, int b) const { return l.emit(Op::div, dtype, {a, b}); }
  int neg(int a) const { return l.emit(Op::neg, dtype, {a}); }
  int max(int a, int b) const { return l.emit(Op::maximum, dtype, {a, b}); }
  int min(int a, int b) const { return l.emit(Op::minimum, dtype, {a, b}); }
  int of(Op op, int a) const { return l.emit(op, dtype, {a}); }
  int is(Op op, int a, int b) const { return l.emit(op, ir::DType::boolean, {a, b}); }
  int is(Op op, int a) const { return l.emit(op, ir::DType::boolean, {a}); }
  int both(int a, int b) const { return l.emit(Op::logical_and, ir::DType::boolean, {a, b}); }
  int select(int flag, int a, int b) const { return l.emit(Op::select, dtype, {flag, a, b}); }
};

using Formula = std::function<int(const Math&, const ir::Node&, int)>;
/// Of one tensor called "self".
inline Lower formula(const Formula& f) {
  return [f](Lowering& l, const ir::Node& n, const Place& p) {
    return f(Math{l, out(n)}, n, l.argument(n, "self", p, out(n)));
  };
}
/// The same of one that jumps: of the tensor's own number.
inline Lower stepped_formula(const Formula& f) {
  return [f](Lowering& l, const ir::Node& n, const Place& p) {
    return f(Math{l, out(n)}, n, l.stored_argument(n, "self", p, out(n)));
  };
}

using Derivative = std::function<int(const Math&, const ir::Node&, int grad, int x)>;
/// Of the incoming gradient and one tensor of the forward pass.
inline Lower derivative(const char* of, const Derivative& f, const char* grad = "grad_output") {
  return [of, grad, f](Lowering& l, const ir::Node& n, const Place& p) {
    return f(Math{l, out(n)}, n, l.argument(n, grad, p, out(n)), l.argument(n, of, p, out(n)));
  };
}
inline Lower stepped_derivative(const char* of, const Derivative& f, const char* grad = "grad_output") {
  return [of, grad, f](Lowering& l, const ir::Node& n, const Place& p) {
    return f(Math{l, out(n)}, n, l.argument(n, grad, p, out(n)), l.stored_argument(n, of, p, out(n)));
  };
}

inline double scalar(const ir::Node& n, std::string_view name, double standard) {
  return ir::number_of(n, name).value_or(standard);
}

/// Of functions that jump.
inline Lower stepped(Op op) {
  return [op](Lowering& l, const ir::Node& n, const Place& p) {
    return l.emit(op, out(n), {l.stored_argument(n, "self", p, out(n))});
  };
}

/// Rounded as the result is: a number or a wider tensor meets a half one as a half.
inline int rounded_argument(Lowering& l, const ir::Node& n, const char* name, const Place& p) {
  const auto dtype = n.output().type().dtype;
  const auto* value = ir::value_of(n, name);
  const int x = l.stored_argument(n, name, p, out(n));
  return value && value->type().dtype == dtype ? x : l.convert(x, dtype);
}

}  // namespace graft::codegen
