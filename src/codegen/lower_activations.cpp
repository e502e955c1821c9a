// Activations with a shape of their own, what losses are derived by, and gates, as instructions.
#include <limits>

#include "codegen/lower_math.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;

/// ATen rounds the thresholds of functions that jump as it rounds the tensor.
int threshold(const Math& m, const Node& n, double number) {
  return m.l.convert(m(number), n.output().type().dtype);
}

int softplus_of(const Math& m, int x) { return m.of(Op::log1p, m.of(Op::exp, x)); }

int mish(const Math& m, const Node&, int x) { return m.mul(x, m.of(Op::tanh, softplus_of(m, x))); }

int mish_backward(const Math& m, const Node&, int g, int x) {
  const int t = m.of(Op::tanh, softplus_of(m, x));
  const int rising = m.mul(m.mul(x, m.of(Op::sigmoid, x)), m.sub(m(1), m.mul(t, t)));
  return m.mul(g, m.add(t, rising));
}

int celu(const Math& m, const Node& n, int x) {
  const double alpha = scalar(n, "alpha", 1);
  const int low = m.mul(m(alpha), m.of(Op::expm1, m.mul(x, m(1 / alpha))));
  return m.select(m.is(Op::le, x, m(0)), low, x);
}

int inside(const Math& m, const Node& n, int x, double lambda) {
  return m.both(m.is(Op::ge, x, threshold(m, n, -lambda)), m.is(Op::le, x, threshold(m, n, lambda)));
}
int shrunk(const Math& m, const Node& n, int x, int result) {
  return m.select(inside(m, n, x, scalar(n, "lambd", 0.5)), m(0), result);
}

int softshrink(const Math& m, const Node& n, int x) {
  const double lambda = scalar(n, "lambd", 0.5);
  const int low = m.select(m.is(Op::lt, x, m(-lambda)), m.add(x, m(lambda)), m.mul(x, m(0)));
  return m.select(m.is(Op::gt, x, m(lambda)), m.sub(x, m(lambda)), low);
}

/// ATen has the sixth in float32 for all types.
int hardsigmoid_backward(const Math& m, const Node&, int g, int x) {
  const int rising = m.both(m.is(Op::gt, x, m(-3)), m.is(Op::lt, x, m(3)));
  return m.select(rising, m.mul(g, m(1.0F / 6)), m(0));
}

int hardswish_backward(const Math& m, const Node&, int g, int x) {
  const int middle = m.mul(g, m.add(m.div(x, m(3)), m(0.5)));
  return m.select(m.is(Op::le, x, m(-3)), m(0), m.select(m.is(Op::lt, x, m(3)), middle, g));
}

/// ATen on a CPU is given exp(-|x|) by the forward pass; computed again it need not be kept.
int log_sigmoid_backward(const Math& m, const Node&, int g, int x) {
  const int z = m.of(Op::exp, m.neg(m.of(Op::abs, x)));
  const int part = m.div(z, m.add(m(1), z));
  return m.mul(g, m.select(m.is(Op::lt, x, m(0)), m.sub(m(1), part), part));
}

int logit(const Math& m, const Node& n, int x) {
  if (const auto eps = ir::number_of(n, "eps")) {
    const int low = m(*eps), high = m(1 - *eps);
    x = m.select(m.is(Op::lt, x, low), low, m.select(m.is(Op::gt, x, high), high, x));
  }
  return m.of(Op::log, m.div(x, m.sub(m(1), x)));
}

int logit_backward(const Math& m, const Node& n, int g, int x) {
  const auto eps = ir::number_of(n, "eps");
  const int low = threshold(m, n, eps.value_or(0)), high = threshold(m, n, 1 - eps.value_or(0));
  const int outside = m.l.emit(Op::logical_or, DType::boolean, {m.is(Op::lt, x, low), m.is(Op::gt, x, high)});
  const int slope = m.div(g, m.mul(x, m.sub(m(1), x)));
  return m.select(outside, m(eps ? 0 : std::numeric_limits<double>::quiet_NaN()), slope);
}

int prelu(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const int x = l.argument(n, "self", p, out(n));
  return m.select(m.is(Op::gt, x, m(0)), x, m.mul(l.argument(n, "weight", p, out(n)), x));
}

/// Half a gate: where the element of the other half lies.
Place other_half(const Node& n, Place p, size_t dim) {
  p[dim] = p[dim] + ir::value_of(n, "self")->type().sizes[dim] / 2;
  return p;
}
size_t gate_dim(const Node& n) {
  return static_cast<size_t>(
      ir::wrapped(ir::int_of(n, "dim").value_or(-1), ir::value_of(n, "self")->type().sizes.size()));
}

int glu(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const auto& x = *ir::value_of(n, "self");
  return m.mul(l.at(x, p, out(n)), m.of(Op::sigmoid, l.at(x, other_half(n, p, gate_dim(n)), out(n))));
}

/// Of a * sigmoid(b): in the first half g * s, in the second g * s * (1 - s) * a.
int glu_backward(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const auto& x = *ir::value_of(n, "self");
  const size_t dim = gate_dim(n);
  const int64_t half = x.type().sizes[dim] / 2;
  auto first = p;
  first[dim] = p[dim] % half;
  const int g = l.at(*ir::value_of(n, "grad_output"), first, out(n));
  const int a = l.at(x, first, out(n)), s = m.of(Op::sigmoid, l.at(x, other_half(n, first, dim), out(n)));
  const int in_first = l.emit(Op::eq, DType::boolean, {l.iota(p[dim] / half), l.integer(DType::i64, 0)});
  const int gs = m.mul(g, s);
  return m.select(in_first, gs, m.mul(m.mul(gs, m.sub(m(1), s)), a));
}

// --- losses

/// What the mean divides by.
double share(const Node& n) {
  constexpr int64_t mean = 1;
  return ir::int_of(n, "reduction").value_or(mean) == mean
             ? 1.0 / static_cast<double>(ir::value_of(n, "self")->type().numel())
             : 1.0;
}

/// Of a function of the distance that is a square near zero and straight elsewhere.
Lower distance_derivative(double (*near)(const Node&), double (*slope)(const Node&),
                          double (*middle)(const Node&)) {
  return [=](Lowering& l, const Node& n, const Place& p) {
    const Math m{l, out(n)};
    const int g = m.mul(l.argument(n, "grad_output", p, out(n)), m(share(n)));
    const int d = m.sub(l.argument(n, "self", p, out(n)), l.argument(n, "target", p, out(n)));
    const int far = m.mul(g, m(slope(n)));
    const int rest = m.select(m.is(Op::ge, d, m(near(n))), far, m.mul(m.mul(d, g), m(middle(n))));
    return m.select(m.is(Op::le, d, m(-near(n))), m.neg(far), rest);
  };
}
double beta_of(const Node& n) { return scalar(n, "beta", 1); }
double delta_of(const Node& n) { return scalar(n, "delta", 1); }
double one(const Node&) { return 1; }

int binary_cross_entropy_backward(Lowering& l, const Node& n, const Place& p) {
  const Math m{l, out(n)};
  const int g = l.argument(n, "grad_output", p, out(n)), x = l.argument(n, "self", p, out(n));
  const int t = l.argument(n, "target", p, out(n));
  const int spread = m.mul(m.sub(m(1), x), x), least = m(1e-12F);
  // ATen writes it in float32 for all types. As std::max: of NaN the first.
  const int divisor = m.select(m.is(Op::lt, spread, least), least, spread);
  int made = m.div(m.mul(g, m.sub(x, t)), divisor);
  if (ir::value_of(n, "weight")) made = m.mul(made, l.argument(n, "weight", p, out(n)));
  return m.mul(made, m(share(n)));
}

/// Tensors of one shape: what torch.nn.functional gives these.
bool same_shapes(const Node& n) {
  const auto& sizes = n.output().type().sizes;
  return floats(n) && ir::value_of(n, "self")->type().sizes == sizes &&
         ir::value_of(n, "target")->type().sizes == sizes;
}

}  // namespace

void add_activations(LowerTable& table) {
  table["aten::mish"] = {formula(mish), floats};
  table["aten::mish_backward"] = {derivative("self", mish_backward), floats};
  table["aten::celu"] = {formula(celu), floats};
  table["aten::softshrink"] = {formula(softshrink), floats};
  table["aten::hardshrink"] = {
      stepped_formula([](const Math& m, const Node& n, int x) { return shrunk(m, n, x, x); }), floats};
  const auto shrunk_gradient = [](const Math& m, const Node& n, int g, int x) { return shrunk(m, n, x, g); };
  table["aten::softshrink_backward"] = {stepped_derivative("self", shrunk_gradient), floats};
  table["aten::hardshrink_backward"] = {stepped_derivative("self", shrunk_gradient, "grad_out"), floats};
  table["aten::hardsigmoid_backward"] = {stepped_derivative("self", hardsigmoid_backward), floats};
  table["aten::hardswish_backward"] = {stepped_derivative("self", hardswish_backward), floats};
  table["aten::log_sigmoid_backward"] = {derivative("self", log_sigmoid_backward), floats};
  table["aten::logit"] = {formula(logit), floats};
  table["aten::logit_backward"] = {stepped_derivative("self", logit_backward), floats};
  table["aten::_prelu_kernel"] = {prelu, floats};
  table["aten::glu"] = {glu, floats};
  table["aten::glu_backward"] = {glu_backward, floats};
  table["aten::smooth_l1_loss_backward"] = {
      distance_derivative(beta_of, one, [](const Node& n) { return 1 / beta_of(n); }),
      [](const Node& n) { return same_shapes(n) && beta_of(n) > 0; }};
  table["aten::huber_loss_backward"] = {distance_derivative(delta_of, delta_of, one), same_shapes};
  table["aten::binary_cross_entropy_backward"] = {binary_cross_entropy_backward, same_shapes};
}

}  // namespace graft::codegen
