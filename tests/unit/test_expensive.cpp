// What fusion computes once and keeps, rather than again wherever it is needed.
#include <gtest/gtest.h>

#include "codegen/lowering.h"
#include "ir/parser.h"

namespace graft::codegen {
namespace {

/// Of a call over %0 to %3: f32, f32, whole numbers, a single number.
bool is_expensive_call(const std::string& call, const std::string& type = "f32[4, 6]") {
  const auto graph =
      ir::parse(R"(graph(%0 "x": f32[4, 6], %1 "y": f32[4, 6], %2 "i": i64[4, 6], %3 "n": f32[]) {
  %4: )" + type +
                " = aten::" + call + "\n  return (%4)\n}\n");
  const auto& node = *graph.nodes().back();
  EXPECT_TRUE(is_pointwise(node)) << call;
  return is_expensive(node);
}

TEST(Expensive, FunctionsOfManyInstructions) {
  for (const char* call : {"exp(self=%0)",
                           "log1p(self=%0)",
                           "tanh(self=%0)",
                           "sigmoid(self=%0)",
                           "erf(self=%0)",
                           "sin(self=%0)",
                           "asin(self=%0)",
                           "acos(self=%0)",
                           "atan(self=%0)",
                           "sinh(self=%0)",
                           "cosh(self=%0)",
                           "silu(self=%0)",
                           "gelu(self=%0)",
                           "gelu(self=%0, approximate=\"tanh\")",
                           "softplus(self=%0)",
                           "elu(self=%0)",
                           "pow.Tensor_Tensor(self=%0, exponent=%1)",
                           "fmod.Tensor(self=%0, other=%1)",
                           "remainder.Scalar(self=%0, other=3)",
                           "div.Tensor_mode(self=%0, other=%1, rounding_mode=\"floor\")",
                           "gelu_backward(grad_output=%0, self=%1)",
                           "silu_backward(grad_output=%0, self=%1)",
                           "softplus_backward(grad_output=%0, self=%1)"})
    EXPECT_TRUE(is_expensive_call(call)) << call;
}

TEST(Expensive, no_arithmetic) {
  for (const char* call :
       {"add.Tensor(self=%0, other=%1, alpha=2)", "mul.Tensor(self=%0, other=%3)",
        "div.Tensor(self=%0, other=%1)", "div.Tensor_mode(self=%0, other=%1, rounding_mode=\"trunc\")",
        "sqrt(self=%0)", "rsqrt(self=%0)", "reciprocal(self=%0)", "relu(self=%0)", "clamp(self=%0, min=0)",
        "tanh_backward(grad_output=%0, output=%1)", "sigmoid_backward(grad_output=%0, output=%1)",
        "lerp.Scalar(self=%0, end=%1, weight=0.25)", "hardswish(self=%0)"})
    EXPECT_FALSE(is_expensive_call(call)) << call;
}

TEST(Expensive, APowerByItsExponent) {
  for (const char* exponent : {"0", "1", "2", "3", "0.5", "-0.5", "-1", "-2"})
    EXPECT_FALSE(is_expensive_call("pow.Tensor_Scalar(self=%0, exponent=" + std::string(exponent) + ")"))
        << exponent;
  for (const char* exponent : {"2.5", "4", "-3"})
    EXPECT_TRUE(is_expensive_call("pow.Tensor_Scalar(self=%0, exponent=" + std::string(exponent) + ")"))
        << exponent;
}

TEST(Expensive, TheGradientOfEluByWhatItIsGiven) {
  const std::string call = "elu_backward(grad_output=%0, alpha=1, scale=1, input_scale=1, ";
  EXPECT_TRUE(is_expensive_call(call + "is_result=false, self_or_result=%1)"));
  EXPECT_FALSE(is_expensive_call(call + "is_result=true, self_or_result=%1)"));
}

TEST(Expensive, WhatLiesAtAPlaceThatIsData) {
  EXPECT_TRUE(is_expensive_call("gather(self=%0, dim=1, index=%2)"));
  EXPECT_TRUE(is_expensive_call("embedding(weight=%0, indices=%2)", "f32[4, 6, 6]"));
  for (const char* name : {"index.Tensor", "_unsafe_index.Tensor"})
    EXPECT_TRUE(is_expensive_call(std::string(name) + "(self=%0, indices=tensors[None, %2])", "f32[4, 4, 6]"))
        << name;
}

TEST(Expensive, OneOfSeveralThings) {
  EXPECT_TRUE(is_expensive_call("cat(tensors=tensors[%0, %1], dim=0)", "f32[8, 6]"));
  EXPECT_TRUE(is_expensive_call("cat(tensors=tensors[%0, %0, %1], dim=-1)", "f32[4, 18]"));
  EXPECT_TRUE(is_expensive_call("stack(tensors=tensors[%0, %1], dim=0)", "f32[2, 4, 6]"));
}

TEST(Expensive, no_one_thing_or_nothing) {
  EXPECT_FALSE(is_expensive_call("cat(tensors=tensors[%0], dim=0)"));
  EXPECT_FALSE(is_expensive_call("stack(tensors=tensors[%0], dim=0)", "f32[1, 4, 6]"));
  EXPECT_FALSE(is_expensive_call("constant_pad_nd(self=%0, pad=[1, 2], value=0.5)", "f32[4, 9]"));
  EXPECT_FALSE(is_expensive_call(
      "slice_backward(grad_output=%0, input_sizes=[9, 6], dim=0, start=2, end=6, step=1)", "f32[9, 6]"));
  EXPECT_FALSE(is_expensive_call("flip(self=%0, dims=[0])"));
  EXPECT_FALSE(is_expensive_call("full(size=[4, 6], fill_value=2)"));
}

}  // namespace
}  // namespace graft::codegen
