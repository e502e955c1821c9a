// One case for every operator that has a lowering or a decomposition: test_lowering_ops.cpp runs each over
// dtypes and layouts, forward and backward, and fails if an operator of the compiler's tables has no case
// here.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "adapters/gate_ops.h"
#include "op_case.h"
#include "whole_cases.h"
#include "window_cases.h"

namespace graft::op_cases {

inline std::vector<Case> unary_cases() {
  return {
      {"aten::exp", all, anything, GRAFT_CASE(i.x.exp())},
      {"aten::exp2", all, anything, GRAFT_CASE(i.x.exp2())},
      {"aten::expm1", all, anything, GRAFT_CASE(i.x.expm1())},
      {"aten::log", all, anything, GRAFT_CASE(i.p.log())},
      {"aten::log2", all, anything, GRAFT_CASE(i.p.log2())},
      {"aten::log10", all, anything, GRAFT_CASE(i.p.log10())},
      {"aten::log1p", all, anything, GRAFT_CASE(i.p.log1p())},
      {"aten::sin", all, anything, GRAFT_CASE(i.x.sin())},
      {"aten::cos", all, anything, GRAFT_CASE(i.x.cos())},
      {"aten::tan", all, anything, GRAFT_CASE(i.u.tan())},
      {"aten::asin", all, anything, GRAFT_CASE(i.u.asin())},
      {"aten::acos", all, anything, GRAFT_CASE(i.u.acos())},
      {"aten::atan", all, anything, GRAFT_CASE(i.x.atan())},
      {"aten::sinh", all, plain, GRAFT_CASE(i.x.sinh())},
      {"aten::cosh", all, plain, GRAFT_CASE(i.x.cosh())},
      {"aten::tanh", all, anything, GRAFT_CASE(i.x.tanh())},
      {"aten::sigmoid", all, anything, GRAFT_CASE(i.x.sigmoid())},
      {"aten::erf", all, anything, GRAFT_CASE(i.x.erf())},
      {"aten::erfc", all, anything, GRAFT_CASE(i.x.erfc())},
      {"aten::sqrt", all, anything, GRAFT_CASE(i.p.sqrt())},
      {"aten::rsqrt", all, anything, GRAFT_CASE(i.p.rsqrt())},
      {"aten::reciprocal", all, anything, GRAFT_CASE(i.p.reciprocal())},
      {"aten::neg", numbers, anything, GRAFT_CASE(i.x.neg())},
      {"aten::abs", numbers, anything, GRAFT_CASE(i.x.abs())},
      {"aten::sign", numbers, no_gradient, GRAFT_CASE(i.x.sign())},
      {"aten::floor", numbers, no_gradient, GRAFT_CASE(i.x.floor())},
      {"aten::ceil", numbers, no_gradient, GRAFT_CASE(i.x.ceil())},
      {"aten::round", numbers, no_gradient, GRAFT_CASE(i.x.round())},
      {"aten::trunc", numbers, no_gradient, GRAFT_CASE(i.x.trunc())},
      {"aten::logical_not", all, no_gradient, GRAFT_CASE(i.x.logical_not())},
      {"aten::bitwise_not", ints | flags, anything, GRAFT_CASE(i.x.bitwise_not())},
      {"aten::sgn", numbers, no_gradient, GRAFT_CASE(i.x.sgn())},
      {"aten::frac", floats, anything, GRAFT_CASE(i.x.frac())},
      {"aten::sinc", all, plain | no_half, GRAFT_CASE(i.u.sinc())},
      {"aten::asinh", all, anything, GRAFT_CASE(i.x.asinh())},
      {"aten::acosh", floats, plain, GRAFT_CASE((i.p + 1).acosh())},
      {"aten::acosh", floats, no_gradient, GRAFT_CASE(i.x.acosh())},
      {"aten::atanh", all, anything, GRAFT_CASE(i.u.atanh())},
      {"aten::deg2rad", all, anything, GRAFT_CASE(i.x.deg2rad())},
      {"aten::rad2deg", all, anything, GRAFT_CASE(i.x.rad2deg())},
      {"aten::special_entr", all, no_gradient, GRAFT_CASE(at::special_entr(i.x))},
      {"aten::nan_to_num", all, anything, GRAFT_CASE(i.x.nan_to_num())},
      {"aten::nan_to_num", floats, anything, GRAFT_CASE(i.x.nan_to_num(0.1, 2.3, -7))},
      {"aten::isposinf", floats, no_gradient, GRAFT_CASE(i.x.isposinf())},
      {"aten::isneginf", floats, no_gradient, GRAFT_CASE(i.x.isneginf())},
      {"aten::isnan", floats, no_gradient, GRAFT_CASE(i.x.isnan())},
      {"aten::isinf", floats, no_gradient, GRAFT_CASE(i.x.isinf())},
      {"aten::signbit", all, no_gradient, GRAFT_CASE(i.x.signbit())},
      {"aten::angle", all, no_gradient, GRAFT_CASE(i.x.angle())},
      {"aten::round.decimals", floats, no_gradient | plain, GRAFT_CASE(i.x.round(1))},
      {"aten::round.decimals", floats, no_gradient | plain, GRAFT_CASE((i.x * 100).round(-1))},
      {"aten::clone", all, anything, GRAFT_CASE(i.x.clone())},
  };
}

inline std::vector<Case> binary_cases() {
  return {
      {"aten::add.Tensor", all, anything, GRAFT_CASE(i.x + i.y), flags},
      {"aten::add.Tensor", floats, plain, GRAFT_CASE(at::add(i.x, i.y, 2.5))},
      {"aten::add.Tensor", ints, anything, GRAFT_CASE(at::add(i.x, i.y, 3))},
      {"aten::sub.Tensor", numbers, anything, GRAFT_CASE(i.x - i.y)},
      {"aten::sub.Tensor", numbers, plain, GRAFT_CASE(at::sub(i.x, i.y, 2))},
      {"aten::rsub.Scalar", numbers, anything, GRAFT_CASE(at::rsub(i.x, 3, 2))},
      {"aten::rsub.Tensor", numbers, anything, GRAFT_CASE(at::rsub(i.x, i.y))},
      {"aten::mul.Tensor", all, anything, GRAFT_CASE(i.x * i.y)},
      {"aten::mul.Scalar", all, anything, GRAFT_CASE(i.x * 0.1)},
      {"aten::div.Tensor", all, anything, GRAFT_CASE(i.x / i.y)},
      {"aten::div.Scalar", all, anything, GRAFT_CASE(i.x / 3)},
      {"aten::div.Tensor_mode", numbers, plain | no_gradient | no_half,
       GRAFT_CASE(at::div(i.x, i.p, "floor")), ints},
      {"aten::div.Scalar_mode", numbers, plain | no_gradient | no_half,
       GRAFT_CASE(at::div(i.x, 0.1, "floor"))},
      {"aten::div.Tensor_mode", floats, no_gradient | no_half, GRAFT_CASE(at::div(i.x, i.y, "trunc"))},
      {"aten::div.Tensor_mode", floats, no_gradient | no_half, GRAFT_CASE(at::div(i.x, i.y, "floor"))},
      {"aten::fmod.Tensor", numbers, plain | no_half, GRAFT_CASE(at::fmod(i.x, i.p)), ints},
      {"aten::fmod.Scalar", numbers, plain | no_half, GRAFT_CASE(at::fmod(i.x, 3))},
      {"aten::remainder.Tensor", numbers, plain | no_half, GRAFT_CASE(at::remainder(i.x, i.p)), ints},
      {"aten::remainder.Scalar", numbers, plain | no_half, GRAFT_CASE(at::remainder(i.x, -3))},
      {"aten::bitwise_and.Tensor", ints | flags, anything, GRAFT_CASE(at::bitwise_and(i.x, i.y))},
      {"aten::bitwise_or.Tensor", ints | flags, anything, GRAFT_CASE(at::bitwise_or(i.x, i.y))},
      {"aten::bitwise_xor.Tensor", ints | flags, anything, GRAFT_CASE(at::bitwise_xor(i.x, i.y))},
      {"aten::bitwise_and.Scalar", ints | flags, anything, GRAFT_CASE(at::bitwise_and(i.x, 1))},
      {"aten::bitwise_or.Scalar", ints | flags, anything, GRAFT_CASE(at::bitwise_or(i.x, 1))},
      {"aten::bitwise_xor.Scalar", ints | flags, anything, GRAFT_CASE(at::bitwise_xor(i.x, 1))},
      {"aten::maximum", all, anything, GRAFT_CASE(at::maximum(i.x, i.y))},
      {"aten::minimum", all, anything, GRAFT_CASE(at::minimum(i.x, i.y))},
      {"aten::logical_and", all, no_gradient, GRAFT_CASE(at::logical_and(i.x, i.y))},
      {"aten::logical_or", all, no_gradient, GRAFT_CASE(at::logical_or(i.x, i.y))},
      {"aten::logical_xor", all, no_gradient, GRAFT_CASE(at::logical_xor(i.x, i.y))},
      {"aten::eq.Tensor", all, no_gradient, GRAFT_CASE(i.x.eq(i.y))},
      {"aten::ne.Tensor", all, no_gradient, GRAFT_CASE(i.x.ne(i.y))},
      {"aten::lt.Tensor", all, no_gradient, GRAFT_CASE(i.x.lt(i.y))},
      {"aten::le.Tensor", all, no_gradient, GRAFT_CASE(i.x.le(i.y))},
      {"aten::gt.Tensor", all, no_gradient, GRAFT_CASE(i.x.gt(i.y))},
      {"aten::ge.Tensor", all, no_gradient, GRAFT_CASE(i.x.ge(i.y))},
      {"aten::eq.Scalar", all, no_gradient, GRAFT_CASE(i.x.eq(1))},
      {"aten::ne.Scalar", all, no_gradient, GRAFT_CASE(i.x.ne(0.1))},
      {"aten::lt.Scalar", all, no_gradient, GRAFT_CASE(i.x.lt(0.5))},
      {"aten::le.Scalar", all, no_gradient, GRAFT_CASE(i.x.le(1))},
      {"aten::gt.Scalar", all, no_gradient, GRAFT_CASE(i.x.gt(0.1))},
      {"aten::ge.Scalar", all, no_gradient, GRAFT_CASE(i.x.ge(true))},
      {"aten::pow.Tensor_Tensor", numbers, plain, GRAFT_CASE(i.p.pow(i.p)), ints},
      {"aten::pow.Tensor_Tensor", floats, no_gradient, GRAFT_CASE(i.x.pow(i.y))},
      {"aten::pow.Tensor_Scalar", numbers, anything, GRAFT_CASE(i.x.pow(2))},
      {"aten::pow.Tensor_Scalar", numbers, anything, GRAFT_CASE(i.x.pow(3))},
      {"aten::pow.Tensor_Scalar", all, anything, GRAFT_CASE(i.p.pow(0.5))},
      {"aten::pow.Tensor_Scalar", all, anything, GRAFT_CASE(i.p.pow(-0.5))},
      {"aten::pow.Tensor_Scalar", floats, anything, GRAFT_CASE(i.x.pow(-1))},
      {"aten::pow.Tensor_Scalar", floats, anything, GRAFT_CASE(i.x.pow(-2))},
      {"aten::pow.Tensor_Scalar", all, plain, GRAFT_CASE(i.p.pow(1.7))},
      {"aten::pow.Tensor_Scalar", floats, no_gradient, GRAFT_CASE(i.x.pow(0))},
      {"aten::pow.Scalar", all, plain, GRAFT_CASE(at::pow(2.5, i.x))},
      {"aten::pow.Scalar", floats, no_gradient, GRAFT_CASE(at::pow(1, i.x))},
      {"aten::floor_divide", floats, no_gradient | no_half, GRAFT_CASE(at::floor_divide(i.x, i.y))},
      {"aten::ldexp.Tensor", all, plain, GRAFT_CASE(at::ldexp(i.x, i.y))},
      {"aten::copysign.Tensor", floats, plain, GRAFT_CASE(at::copysign(i.x, i.y))},
      {"aten::copysign.Tensor", all, no_gradient, GRAFT_CASE(at::copysign(i.x, i.y))},
      {"aten::copysign.Scalar", all, no_gradient, GRAFT_CASE(at::copysign(i.x, -2.5))},
      {"aten::atan2", all, plain, GRAFT_CASE(at::atan2(i.x, i.y))},
      {"aten::atan2", floats, no_gradient, GRAFT_CASE(at::atan2(i.x, i.y))},
      {"aten::hypot", floats, plain, GRAFT_CASE(at::hypot(i.x, i.y))},
      {"aten::hypot", floats, no_gradient, GRAFT_CASE(at::hypot(i.x, i.y))},
      {"aten::xlogy.Tensor", all, plain, GRAFT_CASE(at::xlogy(i.x, i.p))},
      {"aten::xlogy.Tensor", all, no_gradient, GRAFT_CASE(at::xlogy(i.x, i.y))},
      {"aten::xlogy.Scalar_Self", all, plain, GRAFT_CASE(at::xlogy(0.3, i.p))},
      {"aten::xlogy.Scalar_Other", all, plain, GRAFT_CASE(at::xlogy(i.x, 1.7))},
      {"aten::special_xlog1py", all, no_gradient, GRAFT_CASE(at::special_xlog1py(i.x, i.y))},
      {"aten::special_xlog1py.self_scalar", all, plain, GRAFT_CASE(at::special_xlog1py(2, i.p))},
      {"aten::special_xlog1py.other_scalar", all, plain, GRAFT_CASE(at::special_xlog1py(i.x, 2))},
      {"aten::logaddexp", floats, plain, GRAFT_CASE(at::logaddexp(i.x, i.y))},
      {"aten::logaddexp", floats, no_gradient, GRAFT_CASE(at::logaddexp(i.x, i.y))},
      {"aten::logaddexp2", floats, plain, GRAFT_CASE(at::logaddexp2(i.x, i.y))},
      {"aten::logaddexp2", floats, no_gradient, GRAFT_CASE(at::logaddexp2(i.x, i.y))},
      {"aten::heaviside", all, no_gradient, GRAFT_CASE(at::heaviside(i.x, i.y))},
      {"aten::fmax", all, anything, GRAFT_CASE(at::fmax(i.x, i.y))},
      {"aten::fmin", all, anything, GRAFT_CASE(at::fmin(i.x, i.y))},
      {"aten::lerp.Tensor", floats, plain, GRAFT_CASE(at::lerp(i.x, i.y, i.u))},
      {"aten::lerp.Scalar", floats, plain, GRAFT_CASE(at::lerp(i.x, i.y, 0.7))},
      {"aten::addcmul", floats, plain, GRAFT_CASE(at::addcmul(i.x, i.y, i.z, 0.3))},
      {"aten::addcdiv", floats, plain, GRAFT_CASE(at::addcdiv(i.x, i.y, i.p, 0.3))},
  };
}

inline std::vector<Case> choice_cases() {
  return {
      {"aten::clamp", numbers, anything, GRAFT_CASE(i.x.clamp(0, 2))},
      {"aten::clamp", numbers, anything, GRAFT_CASE(i.x.clamp(at::nullopt, 1))},
      {"aten::clamp", floats, anything, GRAFT_CASE(i.x.clamp(-0.3, 0.4))},
      {"aten::clamp.Tensor", numbers, no_gradient, GRAFT_CASE(i.x.clamp(i.y, i.z))},
      {"aten::clamp_min", numbers, anything, GRAFT_CASE(i.x.clamp_min(1))},
      {"aten::clamp_max", numbers, anything, GRAFT_CASE(i.x.clamp_max(1))},
      {"aten::clamp_min.Tensor", numbers, anything, GRAFT_CASE(i.x.clamp_min(i.y))},
      {"aten::clamp_max.Tensor", numbers, anything, GRAFT_CASE(i.x.clamp_max(i.y))},
      {"aten::where.self", all, anything, GRAFT_CASE(at::where(i.mask, i.x, i.y))},
      {"aten::where.self", all, anything, GRAFT_CASE(at::where(i.mask, i.x, 2))},
      {"aten::where.self", numbers, anything, GRAFT_CASE(at::where(i.mask, 2.5, i.x))},
      {"graft::gate_keep", all, anything, GRAFT_CASE(adapters::gate_keep(i.mask, i.x, i.mask, 0))},
      {"graft::gate_put", all, anything, GRAFT_CASE(adapters::gate_put(i.mask, i.x, i.y, i.mask, 0))},
      {"aten::masked_fill.Scalar", all, anything, GRAFT_CASE(i.x.masked_fill(i.mask, 1))},
      {"aten::masked_fill.Scalar", floats, anything, GRAFT_CASE(i.x.masked_fill(i.mask, -INFINITY))},
      {"aten::masked_fill.Tensor", all, no_gradient | elements,
       GRAFT_CASE(i.x.masked_fill(i.mask, i.y.flatten().select(0, 0)))},
      {"aten::_to_copy", all, anything, GRAFT_CASE(i.x.to(at::kDouble))},
      {"aten::_to_copy", all, plain, GRAFT_CASE(i.x.to(at::kHalf))},
      {"aten::_to_copy", all, anything, GRAFT_CASE(i.x.to(at::kBFloat16))},
      {"aten::_to_copy", all, plain | no_gradient, GRAFT_CASE(i.x.to(at::kLong))},
      {"aten::_to_copy", all, plain | no_gradient, GRAFT_CASE(i.x.to(at::kInt))},
      {"aten::_to_copy", all, plain | no_gradient, GRAFT_CASE(i.x.to(at::kChar))},
      {"aten::_to_copy", all, plain | no_gradient, GRAFT_CASE(i.x.to(at::kByte))},
      {"aten::_to_copy", all, no_gradient, GRAFT_CASE(i.x.to(at::kBool))},
      {"aten::copy", all, no_gradient, GRAFT_CASE(at::zeros_like(i.x, at::kFloat).copy_(i.x))},
      {"aten::copy", all, no_gradient | rank1,
       GRAFT_CASE(i.y.clone().copy_(i.x.select(-1, 0).unsqueeze(-1)))},
  };
}

/// Its derivative is taken from the result.
inline Tensor elu_in_place(const Inputs& i) {
  auto made = i.x * 1.5;
  return at::elu_(made, 1.3);
}

inline std::vector<Case> activation_cases() {
  return {
      {"aten::relu", numbers, anything, GRAFT_CASE(i.x.relu())},
      // Of infinity it is infinity; ATen's for AVX-512 gives NaN.
      {"aten::gelu", floats, anything, GRAFT_CASE(at::gelu(i.x)), none,
       GRAFT_CASE(at::gelu(i.x.to(at::kDouble)).to(i.x.scalar_type()))},
      {"aten::gelu", floats, plain, GRAFT_CASE(at::gelu(i.x, "tanh"))},
      {"aten::silu", floats, anything, GRAFT_CASE(at::silu(i.x))},
      {"aten::elu", floats, anything, GRAFT_CASE(at::elu(i.x, 1.3, 0.7, 1.1))},
      {"aten::elu", floats, plain, GRAFT_CASE(elu_in_place(i))},
      {"aten::softplus", floats, anything, GRAFT_CASE(at::softplus(i.x, 1.5, 3))},
      {"aten::leaky_relu", floats, anything, GRAFT_CASE(at::leaky_relu(i.x, 0.2))},
      {"aten::hardtanh", floats, anything, GRAFT_CASE(at::hardtanh(i.x, -0.5, 0.6))},
      {"aten::hardsigmoid", floats, no_gradient, GRAFT_CASE(at::hardsigmoid(i.x))},
      {"aten::hardswish", floats, no_gradient, GRAFT_CASE(at::hardswish(i.x))},
      {"aten::threshold", floats, anything, GRAFT_CASE(at::threshold(i.x, 0.1, -2))},
      {"aten::hardsigmoid", floats, plain, GRAFT_CASE(at::hardsigmoid(i.x))},
      {"aten::hardswish", floats, plain, GRAFT_CASE(at::hardswish(i.x))},
      {"aten::mish", floats, anything, GRAFT_CASE(at::mish(i.x))},
      {"aten::celu", floats, anything, GRAFT_CASE(at::celu(i.x, 1.3))},
      {"aten::softshrink", floats, anything, GRAFT_CASE(at::softshrink(i.x, 0.3))},
      {"aten::hardshrink", floats, anything, GRAFT_CASE(at::hardshrink(i.x, 0.3))},
      {"aten::log_sigmoid_forward", floats, anything, GRAFT_CASE(at::log_sigmoid(i.x))},
      {"aten::logit", floats, anything, GRAFT_CASE(at::logit(i.u.abs()))},
      {"aten::logit", floats, anything, GRAFT_CASE(at::logit(i.u, 0.2))},
      {"aten::_prelu_kernel", floats, rank2 | elements, GRAFT_CASE(at::prelu(i.x, i.y.select(0, 0)))},
      {"aten::_prelu_kernel", floats, elements | plain,
       GRAFT_CASE(at::prelu(i.x, i.y.flatten().slice(0, 0, 1)))},
      {"aten::glu", floats, rank1 | elements | plain, GRAFT_CASE(at::glu(at::cat({i.x, i.y}, 0), 0))},
      {"aten::glu", floats, rank2 | elements, GRAFT_CASE(at::glu(at::cat({i.x, i.y}, -1)))},
      {"aten::native_dropout_backward", floats, plain | no_gradient,
       GRAFT_CASE(at::native_dropout_backward(i.x, i.mask, 1.25))},
  };
}

inline std::vector<Case> creation_cases() {
  return {
      {"aten::zeros", all, no_gradient, GRAFT_CASE(at::zeros(i.x.sizes(), i.x.options()) + i.at)},
      {"aten::zeros_like", all, no_gradient, GRAFT_CASE(at::zeros_like(i.x))},
      {"aten::new_zeros", all, no_gradient, GRAFT_CASE(i.x.new_zeros({2, 3}))},
      {"aten::ones", all, no_gradient, GRAFT_CASE(at::ones({3}, i.x.options()))},
      {"aten::ones_like", all, no_gradient, GRAFT_CASE(at::ones_like(i.x))},
      {"aten::new_ones", all, no_gradient, GRAFT_CASE(i.x.new_ones({2, 3}))},
      {"aten::full", all, no_gradient, GRAFT_CASE(at::full({2, 3}, 1, i.x.options()))},
      {"aten::full", floats, no_gradient, GRAFT_CASE(at::full({3}, -INFINITY, i.x.options()))},
      {"aten::full_like", all, no_gradient, GRAFT_CASE(at::full_like(i.x, 1))},
      {"aten::new_full", all, no_gradient, GRAFT_CASE(i.x.new_full({3}, 1))},
      {"aten::scalar_tensor", all, no_gradient, GRAFT_CASE(at::scalar_tensor(1, i.x.options()))},
      {"aten::zero", all, no_gradient, GRAFT_CASE(i.x.clone().zero_())},
      {"aten::fill.Scalar", all, no_gradient, GRAFT_CASE(i.x.clone().fill_(1))},
      {"aten::fill.Tensor", all, no_gradient | elements,
       GRAFT_CASE(i.x.clone().fill_(i.y.flatten().select(0, 0)))},
      {"aten::empty.memory_format", all, no_gradient, GRAFT_CASE(at::empty({3}, i.x.options()).fill_(1))},
      {"aten::empty_like", all, no_gradient, GRAFT_CASE(at::empty_like(i.x).fill_(1))},
      {"aten::new_empty", all, no_gradient, GRAFT_CASE(i.x.new_empty({3}).fill_(1))},
      {"aten::empty_strided", all, no_gradient,
       GRAFT_CASE(at::empty_strided({2, 3}, {1, 2}, i.x.options()).fill_(1))},
      {"aten::new_empty_strided", all, no_gradient,
       GRAFT_CASE(i.x.new_empty_strided({2, 3}, {1, 2}).fill_(1))},
      {"aten::arange", numbers, no_gradient, GRAFT_CASE(at::arange(7, i.x.options()))},
      {"aten::arange.start", numbers, no_gradient, GRAFT_CASE(at::arange(3, 20, i.x.options()))},
      {"aten::arange.start_step", numbers, no_gradient, GRAFT_CASE(at::arange(20, 3, -3, i.x.options()))},
      {"aten::arange.start_step", floats, no_gradient, GRAFT_CASE(at::arange(-1.5, 3, 0.25, i.x.options()))},
      {"aten::eye", all, no_gradient, GRAFT_CASE(at::eye(5, i.x.options()))},
      {"aten::eye.m", all, no_gradient, GRAFT_CASE(at::eye(3, 5, i.x.options()))},
      {"aten::tril", all, rank2, GRAFT_CASE(i.x.tril(-1))},
      {"aten::triu", all, rank2, GRAFT_CASE(i.x.triu(1))},
  };
}

inline Tensor put_slice(const Inputs& i, int64_t step) {
  auto made = i.x.clone();
  made.slice(0, 1, made.size(0), step).copy_(i.y.slice(0, 1, made.size(0), step));
  return made;
}
inline Tensor put_row(const Inputs& i, int64_t row) {
  auto made = i.x.clone();
  made.select(0, row).copy_(i.y.select(0, 0));
  return made;
}

inline Tensor back_into_slice(const Inputs& i) {
  auto sizes = i.x.sizes().vec();
  sizes[0] = 2 * sizes[0] + 1;
  return at::slice_backward(i.x, sizes, 0, 1, sizes[0], 2);
}

/// [rows, 12, columns, 2]
inline Tensor channels_of(const Inputs& i) {
  return at::stack({i.x, i.y}, -1).unsqueeze(1).repeat({1, 12, 1, 1});
}

inline std::vector<Case> movement_cases() {
  return {
      {"aten::pixel_shuffle", all, rank2 | elements, GRAFT_CASE(at::pixel_shuffle(channels_of(i), 2))},
      {"aten::pixel_unshuffle", all, rank2 | elements,
       GRAFT_CASE(at::pixel_unshuffle(channels_of(i).permute({2, 3, 1, 0}).repeat({1, 1, 1, 2}), 2))},
      {"aten::channel_shuffle", all, rank2 | elements, GRAFT_CASE(at::channel_shuffle(channels_of(i), 3))},
      {"aten::roll", all, rank2, GRAFT_CASE(i.x.roll(at::IntArrayRef{1, -2}, at::IntArrayRef{0, 1}))},
      {"aten::roll", all, elements, GRAFT_CASE(i.x.roll(at::IntArrayRef{3}))},
      {"aten::cat", all, rank1, GRAFT_CASE(at::cat({i.x, i.y}, 0))},
      {"aten::cat", all, rank1, GRAFT_CASE(at::cat({i.x, i.y, i.z, i.x}, -1))},
      {"aten::cat", all, rank1 | elements,
       GRAFT_CASE(at::cat({i.x.slice(0, 0, 1), i.y, i.z.slice(0, 0, 0)}, 0))},
      {"aten::stack", all, anything, GRAFT_CASE(at::stack({i.x, i.y, i.z}, 0))},
      {"aten::stack", all, anything, GRAFT_CASE(at::stack({i.x, i.y}, -1))},
      {"aten::stack", all, rank2, GRAFT_CASE(at::stack({i.x}, 1))},
      {"aten::slice_scatter", all, rank1 | elements, GRAFT_CASE(put_slice(i, 1))},
      {"aten::slice_scatter", all, rank1 | elements, GRAFT_CASE(put_slice(i, 2))},
      {"aten::slice_scatter", all, rank1 | elements, GRAFT_CASE(put_slice(i, 3))},
      {"aten::select_scatter", all, rank1 | elements, GRAFT_CASE(put_row(i, 0))},
      {"aten::select_scatter", all, rank1 | elements, GRAFT_CASE(put_row(i, -1))},
      {"aten::slice_backward", all, no_gradient | rank1 | elements, GRAFT_CASE(back_into_slice(i))},
      {"aten::select_backward", all, no_gradient, GRAFT_CASE(at::select_backward(i.rows32, {3, 5}, 0, 1))},
      {"aten::constant_pad_nd", all, rank1, GRAFT_CASE(at::constant_pad_nd(i.x, {1, 2}, 1))},
      {"aten::constant_pad_nd", floats, rank1, GRAFT_CASE(at::constant_pad_nd(i.x, {2, 1}, 0.1))},
      {"aten::constant_pad_nd", all, rank2 | elements, GRAFT_CASE(at::constant_pad_nd(i.x, {-1, 2, 3, -1}))},
      {"aten::flip", all, rank1, GRAFT_CASE(i.x.flip({0}))},
      {"aten::flip", all, rank2, GRAFT_CASE(i.x.flip({0, -1}))},
      {"aten::repeat", all, rank2, GRAFT_CASE(i.x.repeat({2, 1, 3}))},
      {"aten::repeat", all, anything, GRAFT_CASE(i.x.repeat({2, 1, 1}))},
      {"aten::embedding", floats, rank2 | elements, GRAFT_CASE(at::embedding(i.x, i.at.slice(1, 0, 2)))},
      {"aten::embedding", floats, rank2 | elements, GRAFT_CASE(at::embedding(i.x, i.rows32))},
      {"aten::index_select", all, rank1 | elements, GRAFT_CASE(i.x.index_select(0, i.rows))},
      {"aten::index_select", all, rank2 | elements, GRAFT_CASE(i.x.index_select(-1, i.columns))},
      {"aten::index_select", all, rank1 | elements | no_gradient,
       GRAFT_CASE(i.x.index_select(0, i.rows.select(0, 1)))},
      {"aten::gather", all, rank1 | elements, GRAFT_CASE(i.x.gather(0, i.at))},
      {"aten::gather", all, rank2 | elements,
       GRAFT_CASE(i.x.gather(-1, i.columns.slice(0, 0, 2).expand({i.x.size(0), 2})))},
      {"aten::index.Tensor", all, rank1 | elements, GRAFT_CASE(i.x.index({i.rows}))},
      {"aten::index.Tensor", all, rank1 | elements, GRAFT_CASE(i.x.index({i.rows32 - i.x.size(0)}))},
      {"aten::index.Tensor", all, rank2 | elements, GRAFT_CASE(i.x.index({i.rows.unsqueeze(1), i.columns}))},
      {"aten::index.Tensor", all, rank2 | elements,
       GRAFT_CASE(i.x.index({at::indexing::Slice(), i.columns.view({1, 5})}))},
      {"aten::index.Tensor", all, rank2 | elements,
       GRAFT_CASE(i.x.unsqueeze(1).expand({-1, 3, -1}).index({i.rows, at::indexing::Slice(), i.columns}))},
      {"aten::_unsafe_index.Tensor", all, rank1 | elements | no_gradient,
       GRAFT_CASE(at::_unsafe_index(i.x, {i.rows}))},
  };
}

inline std::vector<Case> scatter_cases() {
  return {
      {"aten::embedding_dense_backward", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(at::embedding_dense_backward(i.x, i.at.select(1, 0), i.x.size(0) + 1, -1, false))},
      {"aten::embedding_dense_backward", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(at::embedding_dense_backward(i.x, i.at.select(1, 0), i.x.size(0), 1, false))},
      {"aten::index_add", numbers, rank1 | elements | no_half,
       GRAFT_CASE(i.x.index_add(0, i.rows, i.y.index_select(0, i.rows), 2))},
      {"aten::index_add", numbers, rank2 | elements | no_half,
       GRAFT_CASE(i.x.index_add(-1, i.columns, i.y.index_select(-1, i.columns)))},
      {"aten::scatter_add", numbers, rank1 | elements | no_half, GRAFT_CASE(i.x.scatter_add(0, i.at, i.y))},
      {"aten::scatter_add", numbers, rank2 | elements | no_half,
       GRAFT_CASE(
           i.x.scatter_add(-1, i.columns.slice(0, 0, 1).expand({i.x.size(0), 1}), i.y.slice(1, 0, 1)))},
      {"aten::scatter.src", numbers, rank1 | elements, GRAFT_CASE(i.x.scatter(0, i.at, i.y))},
      {"aten::scatter.src", numbers, rank2 | elements,
       GRAFT_CASE(i.x.scatter(-1, i.columns.slice(0, 0, 1).expand({i.x.size(0), 1}), i.y.slice(1, 0, 1)))},
      {"aten::scatter.value", numbers, rank1 | elements, GRAFT_CASE(i.x.scatter(0, i.at, 2))},
      {"aten::index_fill.int_Scalar", numbers, rank1 | elements,
       GRAFT_CASE(i.x.index_fill(0, i.rows - i.x.size(0), 3))},
      {"aten::index_fill.int_Tensor", numbers, rank2 | elements | no_gradient,
       GRAFT_CASE(i.x.index_fill(-1, i.columns, i.y.select(0, 0).select(0, 0)))},
      {"aten::index_put", numbers, rank1 | elements,
       GRAFT_CASE(i.x.index_put({i.rows}, i.y.index_select(0, i.rows)))},
      {"aten::index_put", numbers, rank2 | elements,
       GRAFT_CASE(i.x.index_put({i.rows, i.columns}, i.y.select(0, 0).select(0, 0)))},
      {"aten::index_put", numbers, rank1 | elements,
       GRAFT_CASE(i.x.index_put({i.rows - i.x.size(0)}, i.y.index_select(0, i.rows), true))},
      {"aten::index_put", numbers, rank2 | elements,
       GRAFT_CASE(i.x.index_put({i.rows, i.columns}, i.y.select(0, 0).select(0, 0), true))},
      {"aten::_index_put_impl", numbers, rank1 | elements | no_gradient,
       GRAFT_CASE(at::_index_put_impl(i.x, {i.rows}, i.y.index_select(0, i.rows), true, false))},
      {"aten::_unsafe_index_put", numbers, rank1 | elements | no_gradient,
       GRAFT_CASE(at::_unsafe_index_put(i.x, {i.rows}, i.y.index_select(0, i.rows), true))},
  };
}

inline std::vector<Case> reduction_cases() {
  return {
      {"aten::sum", all, anything, GRAFT_CASE(i.x.sum())},
      {"aten::sum.dim_IntList", all, anything, GRAFT_CASE(i.x.sum(-1))},
      {"aten::sum.dim_IntList", all, rank1, GRAFT_CASE(i.x.sum({0}, true))},
      {"aten::sum.dim_IntList", all, rank2, GRAFT_CASE(i.x.sum(at::IntArrayRef{0, -1}, false, at::kDouble))},
      // Its gradient looks for zeros in the data: a graph break.
      {"aten::prod", all, anything, GRAFT_CASE(i.u.prod())},
      {"aten::prod.dim_int", all, anything, GRAFT_CASE(i.u.prod(0))},
      {"aten::amax", all, elements, GRAFT_CASE(i.x.amax(-1))},
      {"aten::amax", all, elements | rank1, GRAFT_CASE(i.x.amax(0, true))},
      {"aten::amin", all, elements, GRAFT_CASE(i.x.amin())},
      {"aten::amin", all, elements | rank1, GRAFT_CASE(i.x.amin(0))},
      {"aten::max", all, elements | no_gradient, GRAFT_CASE(i.x.max())},
      {"aten::min", all, elements | no_gradient, GRAFT_CASE(i.x.min())},
      {"aten::any", all, no_gradient, GRAFT_CASE(i.x.any())},
      {"aten::any.dim", all, no_gradient, GRAFT_CASE(i.x.any(-1))},
      {"aten::any.dims", all, no_gradient | rank2, GRAFT_CASE(at::any(i.x, at::IntArrayRef{0, 1}, true))},
      {"aten::all", all, no_gradient, GRAFT_CASE(i.x.all())},
      {"aten::all.dim", all, no_gradient, GRAFT_CASE(i.x.all(0, true))},
      {"aten::all.dims", all, no_gradient | rank2, GRAFT_CASE(at::all(i.x, at::IntArrayRef{0, 1}))},
      {"aten::argmax", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmax(-1))},
      {"aten::argmax", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmax())},
      {"aten::argmax", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmax(0, true))},
      {"aten::argmin", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmin(-1))},
      {"aten::argmin", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmin())},
      {"aten::argmin", numbers, elements | no_gradient, GRAFT_CASE(i.x.argmin(0))},
      {"aten::mean", floats, elements, GRAFT_CASE(i.x.mean())},
      {"aten::mean.dim", floats, elements, GRAFT_CASE(i.x.mean(-1))},
      {"aten::mean.dim", numbers, elements | rank1,
       GRAFT_CASE(i.x.mean(at::IntArrayRef{0}, true, at::kFloat))},
      {"aten::var.correction", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(i.x.var(at::IntArrayRef{0}, true))},
      {"aten::var.correction", floats, rank2 | elements | plain,
       GRAFT_CASE(
           at::var(i.x, at::OptionalIntArrayRef(at::IntArrayRef{-1}), std::optional<at::Scalar>(0.5)))},
      {"aten::var.correction", floats, rank2 | elements | plain | no_gradient,
       GRAFT_CASE(at::var(i.x, at::OptionalIntArrayRef(at::IntArrayRef{0}),
                          std::optional<at::Scalar>(i.x.size(0) + 2)))},
      {"aten::std.correction", floats, rank2 | elements | plain,
       GRAFT_CASE(i.x.std(at::IntArrayRef{1}, true))},
      {"aten::var_mean.correction", floats, rank2 | elements | plain,
       GRAFT_CASE(std::get<0>(at::var_mean(i.x, at::IntArrayRef{-1}, true)) +
                  std::get<1>(at::var_mean(i.x, at::IntArrayRef{-1}, true)))},
      {"aten::logsumexp", floats, elements | rank1, GRAFT_CASE(i.x.logsumexp(at::IntArrayRef{-1}))},
      {"aten::logsumexp", floats, elements | rank2, GRAFT_CASE(i.x.logsumexp(at::IntArrayRef{0, 1}, true))},
      {"aten::linalg_vector_norm", floats, elements | rank1,
       GRAFT_CASE(at::linalg_vector_norm(i.x, 2, at::IntArrayRef{-1}))},
      {"aten::linalg_vector_norm", floats, elements | plain | rank1,
       GRAFT_CASE(at::linalg_vector_norm(i.x, 1, at::OptionalIntArrayRef(), false, at::kDouble))},
      {"aten::linalg_vector_norm", floats, elements | rank1,
       GRAFT_CASE(at::linalg_vector_norm(i.x, INFINITY, at::IntArrayRef{0}))},
      {"aten::linalg_vector_norm", floats, elements | rank1 | no_gradient,
       GRAFT_CASE(at::linalg_vector_norm(i.x, -INFINITY, at::IntArrayRef{0}, true))},
      {"aten::linalg_vector_norm", floats, elements | rank1 | no_gradient,
       GRAFT_CASE(at::linalg_vector_norm(i.x, 0, at::IntArrayRef{-1}))},
      {"aten::linalg_vector_norm", floats, elements | plain | rank2,
       GRAFT_CASE(at::linalg_vector_norm(i.p, 3.5, at::IntArrayRef{-1}))},
      {"aten::linalg_vector_norm", floats, elements | plain | rank2 | no_gradient,
       GRAFT_CASE(at::linalg_vector_norm(i.p, -1.5, at::IntArrayRef{0}))},
      {"aten::norm.ScalarOpt_dim", floats, elements | plain | rank1,
       GRAFT_CASE(at::pairwise_distance(i.x, i.y))},
      {"aten::_softmax", floats, elements | rank1, GRAFT_CASE(i.x.softmax(-1))},
      {"aten::_softmax", floats, elements | rank1, GRAFT_CASE(i.x.softmax(0))},
      {"aten::_log_softmax", floats, elements | rank1, GRAFT_CASE(i.x.log_softmax(-1))},
      {"aten::_log_softmax", floats, elements | rank1, GRAFT_CASE(i.x.log_softmax(0))},
      {"aten::max.dim", all, elements | rank1, GRAFT_CASE(std::get<0>(i.x.max(-1, true)))},
      {"aten::max.dim", numbers, elements | rank1 | no_gradient, GRAFT_CASE(std::get<1>(i.x.max(0)))},
      {"aten::min.dim", all, elements | rank1, GRAFT_CASE(std::get<0>(i.x.min(-1)))},
      {"aten::min.dim", numbers, elements | rank1 | no_gradient, GRAFT_CASE(std::get<1>(i.x.min(0)))},
  };
}

inline Tensor batch_norm(const Inputs& i, bool training) {
  const auto weight = i.p.select(0, 0), bias = i.y.select(0, 0);
  const auto mean = i.z.select(0, 0).detach().clone(), var = i.p.select(0, 0).detach().clone();
  return at::batch_norm(i.x, weight, bias, mean, var, training, 0.1, 1e-3, false);
}

/// Rows as channels.
inline Tensor group_norm(const Inputs& i, bool weighted) {
  const auto x = i.x.unsqueeze(0);
  const int64_t groups = i.x.size(0) % 2 ? 1 : 2;
  if (!weighted) return at::group_norm(x, groups);
  return at::group_norm(x, groups, i.p.select(1, 0), i.y.select(1, 0), 1e-3);
}

/// A class for every row.
inline Tensor targets(const Inputs& i) { return i.columns.slice(0, 0, 1).expand({i.x.size(0)}).clone(); }

/// [1, classes, rows, 1]
inline Tensor rows_as_pixels(const Tensor& x) {
  return (x.dim() == 1 ? x.unsqueeze(1) : x).t().contiguous().unsqueeze(0).unsqueeze(-1);
}

inline std::vector<Case> composed_cases() {
  return {
      {"aten::native_layer_norm", floats, rank1 | elements | plain,
       GRAFT_CASE(at::layer_norm(i.x, {i.x.size(-1)}, i.y.reshape({-1, i.x.size(-1)}).select(0, 0),
                                 i.z.reshape({-1, i.x.size(-1)}).select(0, 0)))},
      {"aten::native_layer_norm", floats, rank1 | elements | plain,
       GRAFT_CASE(at::layer_norm(i.x, i.x.sizes(), i.y, i.z))},
      {"aten::native_layer_norm", floats, rank1 | elements | plain,
       GRAFT_CASE(at::layer_norm(i.x, {i.x.size(-1)}))},
      {"aten::_native_batch_norm_legit_no_training", floats, rank2 | elements | plain,
       GRAFT_CASE(batch_norm(i, false))},
      {"aten::_native_batch_norm_legit_functional", floats, rank2 | elements | plain,
       GRAFT_CASE(batch_norm(i, true))},
      {"aten::_native_batch_norm_legit.no_stats", floats, rank2 | elements | plain,
       GRAFT_CASE(at::batch_norm(i.x, i.y.select(0, 0), {}, {}, {}, true, 0.1, 1e-3, false))},
      {"aten::native_group_norm", floats, rank2 | elements | plain, GRAFT_CASE(group_norm(i, true))},
      {"aten::native_group_norm", floats, rank2 | elements | plain, GRAFT_CASE(group_norm(i, false))},
      {"aten::huber_loss", floats, elements | plain, GRAFT_CASE(at::huber_loss(i.x, i.y))},
      {"aten::huber_loss", floats, anything, GRAFT_CASE(at::huber_loss(i.x, i.y, at::Reduction::None, 0.7))},
      {"aten::smooth_l1_loss", floats, elements | plain, GRAFT_CASE(at::smooth_l1_loss(i.x, i.y))},
      {"aten::smooth_l1_loss", floats, anything,
       GRAFT_CASE(at::smooth_l1_loss(i.x, i.y, at::Reduction::None, 0.7))},
      {"aten::binary_cross_entropy_with_logits", floats, elements | plain,
       GRAFT_CASE(at::binary_cross_entropy_with_logits(i.x, i.u.detach()))},
      {"aten::binary_cross_entropy_with_logits", floats, rank2 | elements | plain,
       GRAFT_CASE(at::binary_cross_entropy_with_logits(i.x, i.u.detach(), i.p.detach(),
                                                       i.p.detach().select(0, 0), at::Reduction::Sum))},
      {"aten::binary_cross_entropy_backward", floats, elements | plain | no_gradient,
       GRAFT_CASE(at::binary_cross_entropy_backward(i.y, i.u, i.p, i.p, at::Reduction::Mean))},
      {"aten::mse_loss", floats, elements | plain, GRAFT_CASE(at::mse_loss(i.x, i.y))},
      {"aten::mse_loss", floats, elements | plain, GRAFT_CASE(at::mse_loss(i.x, i.y, at::Reduction::Sum))},
      {"aten::mse_loss", floats, plain, GRAFT_CASE(at::mse_loss(i.x, i.y, at::Reduction::None))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss(i.x, targets(i)))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss(i.x, targets(i), {}, at::Reduction::Sum, 0))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss(i.x, targets(i), {}, at::Reduction::None, 1))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::cross_entropy_loss(i.x, targets(i)))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::cross_entropy_loss(i.x, targets(i), i.p.detach().select(0, 0)))},
      {"aten::nll_loss_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss(i.x, targets(i), i.p.detach().select(0, 0), at::Reduction::None, 1))},
      {"aten::nll_loss2d_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss2d(rows_as_pixels(i.x), rows_as_pixels(targets(i)).squeeze(1)))},
      {"aten::nll_loss2d_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss2d(rows_as_pixels(i.x), rows_as_pixels(targets(i)).squeeze(1),
                                 i.p.detach().select(0, 0), at::Reduction::Sum, 0))},
      {"aten::nll_loss2d_forward", floats, rank2 | elements | plain | no_half,
       GRAFT_CASE(at::nll_loss2d(rows_as_pixels(i.x), rows_as_pixels(targets(i)).squeeze(1), {},
                                 at::Reduction::None, 1))},
  };
}

#undef GRAFT_CASE

inline std::vector<std::vector<Case>> families() {
  return {unary_cases(),    binary_cases(),     choice_cases(),  activation_cases(),    creation_cases(),
          movement_cases(), resampling_cases(), pooling_cases(), scatter_cases(),       reduction_cases(),
          composed_cases(), whole_cases(),      scan_cases(),    more_reduction_cases()};
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& family : families()) cases.insert(cases.end(), family.begin(), family.end());
  return cases;
}

/// Operators that no eager call records (they are made of others there), as graphs.
struct TextCase {
  std::string op, text;
};

inline std::vector<TextCase> text_cases() {
  const auto unary = [](const std::string& op, const std::string& arguments) {
    return TextCase{
        op,
        "graph(%0 \"x\": f32[3, 17], %1 \"y\": f32[3, 17], %2 \"m\": bool[3, 17]) {\n  %3: f32[3, 17] = " +
            op + "(" + arguments + ")\n  return (%3)\n}\n"};
  };
  return {
      unary("aten::square", "self=%0"),
      unary("aten::floor_divide.Scalar", "self=%0, other=1.5"),
      unary("aten::contiguous", "self=%0"),
      unary("aten::lift_fresh_copy", "self=%0"),
      unary("aten::to.dtype", "self=%0, dtype=f32, copy=true"),
      unary("aten::add.Scalar", "self=%0, other=1.5, alpha=2"),
      unary("aten::sub.Scalar", "self=%0, other=1.5, alpha=2"),
      unary("aten::mul.Scalar", "self=%0, other=1.5"),
      unary("aten::div.Scalar", "self=%0, other=1.5"),
      unary("aten::div.Scalar_mode", "self=%0, other=1.5, rounding_mode=\"floor\""),
      unary("aten::where.ScalarOther", "condition=%2, self=%0, other=1.5"),
      unary("aten::where.ScalarSelf", "condition=%2, self=1.5, other=%0"),
      unary("aten::where.Scalar", "condition=%2, self=1.5, other=2.5"),
      unary("aten::hardtanh_backward", "grad_output=%0, self=%1, min_val=-0.5, max_val=0.5"),
      {"aten::norm.Scalar",
       "graph(%0 \"x\": f32[3, 17]) {\n  %1: f32[] = aten::norm.Scalar(self=%0, p=1)\n  return (%1)\n}\n"},
      {"graft::number",
       "graph(%0 \"x\": f32[3]) {\n  %1: f64[] = graft::number(value=1.5)\n"
       "  %2: f32[3] = aten::add.Tensor(self=%0, other=%1)\n  return (%2)\n}\n"},
      {"aten::bitwise_and.Scalar",
       "graph(%0 \"x\": i32[5]) {\n  %1: i32[5] = aten::bitwise_and.Scalar(self=%0, other=1)\n"
       "  %2: i32[5] = aten::bitwise_or.Scalar(self=%1, other=6)\n"
       "  %3: i32[5] = aten::bitwise_xor.Scalar(self=%2, other=3)\n  return (%1, %2, %3)\n}\n"},
  };
}

}  // namespace graft::op_cases
