// Ops of one element at a time.
#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

const std::vector<int64_t> kMatrix{1024, 1024}, kFew{256, 1024}, kRow{1024}, kColumn{1024, 1};

OpInput x() { return trained("x", kMatrix); }
OpInput y() { return trained("y", kMatrix); }
OpInput positive(const char* name) { return trained(name, kMatrix, 0.1, 3); }
OpInput share() { return trained("x", kMatrix, -0.9, 0.9); }
/// Of functions that take ATen ten times as long as the others.
OpInput few() { return trained("x", kFew, 0.1, 3); }

}  // namespace

std::vector<Op> activation_ops() {
  return {
      {"relu", {x()}, GRAFT_OP(at::relu(in[0]))},
      {"gelu", {x()}, GRAFT_OP(at::gelu(in[0]))},
      {"gelu_tanh", {x()}, GRAFT_OP(at::gelu(in[0], "tanh"))},
      {"silu", {x()}, GRAFT_OP(at::silu(in[0]))},
      {"mish", {x()}, GRAFT_OP(at::mish(in[0]))},
      {"elu", {x()}, GRAFT_OP(at::elu(in[0], 1.3))},
      {"selu", {x()}, GRAFT_OP(at::selu(in[0]))},
      {"celu", {x()}, GRAFT_OP(at::celu(in[0], 1.3))},
      {"softplus", {x()}, GRAFT_OP(at::softplus(in[0]))},
      {"leaky_relu", {x()}, GRAFT_OP(at::leaky_relu(in[0], 0.1))},
      {"hardtanh", {x()}, GRAFT_OP(at::hardtanh(in[0], -0.5, 0.6))},
      {"relu6", {x()}, GRAFT_OP(at::relu6(in[0]))},
      {"hardsigmoid", {x()}, GRAFT_OP(at::hardsigmoid(in[0]))},
      {"hardswish", {x()}, GRAFT_OP(at::hardswish(in[0]))},
      {"threshold", {x()}, GRAFT_OP(at::threshold(in[0], 0.1, -2))},
      {"prelu", {x(), trained("weight", kRow)}, GRAFT_OP(at::prelu(in[0], in[1]))},
      {"glu", {x()}, GRAFT_OP(at::glu(in[0], -1))},
      {"log_sigmoid", {x()}, GRAFT_OP(at::log_sigmoid(in[0]))},
      {"softsign", {x()}, GRAFT_OP(in[0] / (1 + in[0].abs()))},
      {"tanhshrink", {x()}, GRAFT_OP(in[0] - in[0].tanh())},
      {"softshrink", {x()}, GRAFT_OP(at::softshrink(in[0], 0.3))},
      {"hardshrink", {x()}, GRAFT_OP(at::hardshrink(in[0], 0.3))},
      {"sigmoid", {x()}, GRAFT_OP(at::sigmoid(in[0]))},
      {"tanh", {x()}, GRAFT_OP(at::tanh(in[0]))},
  };
}

std::vector<Op> unary_ops() {
  return {
      {"exp", {x()}, GRAFT_OP(in[0].exp())},
      {"exp2", {x()}, GRAFT_OP(in[0].exp2())},
      {"expm1", {x()}, GRAFT_OP(in[0].expm1())},
      {"log", {positive("x")}, GRAFT_OP(in[0].log())},
      {"log2", {positive("x")}, GRAFT_OP(in[0].log2())},
      {"log10", {positive("x")}, GRAFT_OP(in[0].log10())},
      {"log1p", {positive("x")}, GRAFT_OP(in[0].log1p())},
      {"sin", {x()}, GRAFT_OP(in[0].sin())},
      {"cos", {x()}, GRAFT_OP(in[0].cos())},
      {"tan", {share()}, GRAFT_OP(in[0].tan())},
      {"asin", {share()}, GRAFT_OP(in[0].asin())},
      {"acos", {share()}, GRAFT_OP(in[0].acos())},
      {"atan", {x()}, GRAFT_OP(in[0].atan())},
      {"sinh", {x()}, GRAFT_OP(in[0].sinh())},
      {"cosh", {x()}, GRAFT_OP(in[0].cosh())},
      {"asinh", {x()}, GRAFT_OP(in[0].asinh())},
      {"acosh", {trained("x", kMatrix, 1.1, 3)}, GRAFT_OP(in[0].acosh())},
      {"atanh", {share()}, GRAFT_OP(in[0].atanh())},
      {"erf", {x()}, GRAFT_OP(in[0].erf())},
      {"erfc", {x()}, GRAFT_OP(in[0].erfc())},
      {"erfinv", {share()}, GRAFT_OP(in[0].erfinv())},
      {"lgamma", {few()}, GRAFT_OP(in[0].lgamma())},
      {"digamma", {few()}, GRAFT_OP(in[0].digamma())},
      {"sqrt", {positive("x")}, GRAFT_OP(in[0].sqrt())},
      {"rsqrt", {positive("x")}, GRAFT_OP(in[0].rsqrt())},
      {"reciprocal", {positive("x")}, GRAFT_OP(in[0].reciprocal())},
      {"neg", {x()}, GRAFT_OP(in[0].neg())},
      {"abs", {x()}, GRAFT_OP(in[0].abs())},
      {"square", {x()}, GRAFT_OP(in[0].square())},
      {"sign", {fixed("x", kMatrix)}, GRAFT_OP(in[0].sign())},
      {"floor", {fixed("x", kMatrix)}, GRAFT_OP(in[0].floor())},
      {"ceil", {fixed("x", kMatrix)}, GRAFT_OP(in[0].ceil())},
      {"round", {fixed("x", kMatrix)}, GRAFT_OP(in[0].round())},
      {"trunc", {fixed("x", kMatrix)}, GRAFT_OP(in[0].trunc())},
      {"frac", {x()}, GRAFT_OP(in[0].frac())},
      {"nan_to_num", {x()}, GRAFT_OP(in[0].nan_to_num())},
      {"isnan", {fixed("x", kMatrix)}, GRAFT_OP(in[0].isnan())},
      {"logical_not", {fixed("x", kMatrix)}, GRAFT_OP(in[0].logical_not())},
      {"clamp", {x()}, GRAFT_OP(in[0].clamp(-0.3, 0.4))},
      {"clamp_min", {x()}, GRAFT_OP(in[0].clamp_min(0.2))},
      {"pow_2", {x()}, GRAFT_OP(in[0].pow(2))},
      {"pow_3", {x()}, GRAFT_OP(in[0].pow(3))},
      {"pow_half", {positive("x")}, GRAFT_OP(in[0].pow(0.5))},
      {"pow_1.7", {positive("x")}, GRAFT_OP(in[0].pow(1.7))},
      {"to_float64", {x()}, GRAFT_OP(at::_to_copy(in[0], at::kDouble))},
      {"to_bfloat16", {x()}, GRAFT_OP(at::_to_copy(in[0], at::kBFloat16))},
      {"clone", {x()}, GRAFT_OP(in[0].clone())},
  };
}

std::vector<Op> binary_ops() {
  return {
      {"add", {x(), y()}, GRAFT_OP(in[0] + in[1])},
      {"add_scalar", {x()}, GRAFT_OP(in[0] + 2.5)},
      {"add_row", {x(), trained("row", kRow)}, GRAFT_OP(in[0] + in[1])},
      {"add_column", {x(), trained("column", kColumn)}, GRAFT_OP(in[0] + in[1])},
      {"add_transposed", {x(), y()}, GRAFT_OP(in[0] + in[1].t())},
      {"sub", {x(), y()}, GRAFT_OP(in[0] - in[1])},
      {"mul", {x(), y()}, GRAFT_OP(in[0] * in[1])},
      {"div", {x(), positive("y")}, GRAFT_OP(in[0] / in[1])},
      {"div_floor",
       {fixed("x", kMatrix), fixed("y", kMatrix, 0.1, 3)},
       GRAFT_OP(at::div(in[0], in[1], "floor"))},
      {"fmod", {x(), fixed("y", kMatrix, 0.1, 3)}, GRAFT_OP(at::fmod(in[0], in[1]))},
      {"remainder", {x(), fixed("y", kMatrix, 0.1, 3)}, GRAFT_OP(at::remainder(in[0], in[1]))},
      {"pow", {positive("x"), positive("y")}, GRAFT_OP(in[0].pow(in[1]))},
      {"atan2", {x(), positive("y")}, GRAFT_OP(at::atan2(in[0], in[1]))},
      {"hypot", {x(), y()}, GRAFT_OP(at::hypot(in[0], in[1]))},
      {"logaddexp", {x(), y()}, GRAFT_OP(at::logaddexp(in[0], in[1]))},
      {"xlogy", {x(), positive("y")}, GRAFT_OP(at::xlogy(in[0], in[1]))},
      {"maximum", {x(), y()}, GRAFT_OP(at::maximum(in[0], in[1]))},
      {"minimum", {x(), y()}, GRAFT_OP(at::minimum(in[0], in[1]))},
      {"fmax", {x(), y()}, GRAFT_OP(at::fmax(in[0], in[1]))},
      {"copysign", {x(), fixed("y", kMatrix)}, GRAFT_OP(at::copysign(in[0], in[1]))},
      {"eq", {fixed("x", kMatrix), fixed("y", kMatrix)}, GRAFT_OP(in[0].eq(in[1]))},
      {"lt", {fixed("x", kMatrix), fixed("y", kMatrix)}, GRAFT_OP(in[0].lt(in[1]))},
      {"logical_and", {fixed("x", kMatrix), fixed("y", kMatrix)}, GRAFT_OP(at::logical_and(in[0], in[1]))},
      {"where", {flags("mask", kMatrix), x(), y()}, GRAFT_OP(at::where(in[0], in[1], in[2]))},
      {"masked_fill", {x(), flags("mask", kMatrix)}, GRAFT_OP(in[0].masked_fill(in[1], -1))},
      {"lerp", {x(), y()}, GRAFT_OP(at::lerp(in[0], in[1], 0.7))},
      {"lerp_tensor", {x(), y(), trained("weight", kMatrix)}, GRAFT_OP(at::lerp(in[0], in[1], in[2]))},
      {"addcmul", {x(), y(), trained("z", kMatrix)}, GRAFT_OP(at::addcmul(in[0], in[1], in[2], 0.3))},
      {"addcdiv", {x(), y(), positive("z")}, GRAFT_OP(at::addcdiv(in[0], in[1], in[2], 0.3))},
  };
}

}  // namespace graft::cli::bench
