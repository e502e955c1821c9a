// Products in floats between halves, with a short side: where they are recognised, and that they mean the
// same.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/dead_code.h"
#include "passes/float_products.h"
#include "targets/reference/interpreter.h"

namespace graft::passes {
namespace {

/// The graph after the pass, which gives the same on random numbers.
std::string with_float_products(const std::string& text, int64_t short_side = 16) {
  const auto before = ir::parse(text);
  auto graph = ir::parse(text);
  use_float_products(graph, short_side);
  eliminate_dead_code(graph);
  ir::verify(graph);
  at::manual_seed(1);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    const auto& type = input->type();
    const auto dtype = type.dtype == ir::DType::bf16 ? at::kBFloat16 : at::kFloat;
    inputs.push_back(at::randn(type.sizes).to(dtype).as_strided(type.sizes, type.strides));
  }
  const auto want = ref::interpret(before, inputs, {}), got = ref::interpret(graph, inputs, {});
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), want[i].scalar_type());
    EXPECT_EQ(got[i].strides(), want[i].strides());
    EXPECT_TRUE(at::allclose(got[i], want[i], 1e-4, 1e-4)) << i;
  }
  return ir::to_string(graph);
}

size_t occurrences(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// An adapter: x A, scaled, B, and the sum with what it is added to.
constexpr auto kForward =
    R"(graph(%0 "x": bf16[2, 36, 64], %1 "a": f32[8, 64], %2 "b": f32[96, 8], %3 "y": bf16[2, 36, 96]) {
  %4: f32[2, 36, 64] = aten::_to_copy(self=%0, dtype=f32)
  %5: f32[72, 64] = aten::view(self=%4, size=[72, 64])
  %6: f32[64, 8]{1, 64} = aten::t(self=%1)
  %7: f32[72, 8] = aten::mm(self=%5, mat2=%6)
  %8: f32[72, 8] = aten::mul.Scalar(self=%7, other=2.0)
  %9: f32[8, 96]{1, 8} = aten::t(self=%2)
  %10: f32[72, 96] = aten::mm(self=%8, mat2=%9)
  %11: f32[2, 36, 96] = aten::_unsafe_view(self=%10, size=[2, 36, 96])
  %12: f32[2, 36, 96] = aten::add.Tensor(self=%3, other=%11)
  %13: bf16[2, 36, 96] = aten::_to_copy(self=%12, dtype=bf16)
  return (%13)
}
)";

TEST(FloatProducts, HalvesAreReadAndWrittenAsTheyAre) {
  const auto text = with_float_products(kForward);
  EXPECT_EQ(occurrences(text, "graft::float_mm"), 2) << text;
  EXPECT_EQ(occurrences(text, "aten::_to_copy"), 0) << text;
  EXPECT_EQ(occurrences(text, "aten::add"), 0) << text;
  EXPECT_NE(text.find("added="), std::string::npos) << text;
}

// The gradients of the same.
constexpr auto kBackward =
    R"(graph(%0 "dy": bf16[72, 96], %1 "low": f32[72, 8], %2 "b": f32[96, 8], %3 "a": f32[8, 64]) {
  %4: f32[72, 96] = aten::_to_copy(self=%0, dtype=f32)
  %5: f32[96, 72]{1, 96} = aten::t(self=%4)
  %6: f32[96, 8] = aten::mm(self=%5, mat2=%1)
  %7: f32[72, 8] = aten::mm(self=%4, mat2=%2)
  %8: f32[72, 64] = aten::mm(self=%7, mat2=%3)
  %9: bf16[72, 64] = aten::_to_copy(self=%8, dtype=bf16)
  return (%6, %7, %9)
}
)";

TEST(FloatProducts, Gradients) {
  const auto text = with_float_products(kBackward);
  EXPECT_EQ(occurrences(text, "graft::float_mm"), 3) << text;
  EXPECT_EQ(occurrences(text, "aten::_to_copy"), 0) << text;
  EXPECT_EQ(occurrences(text, "bf16[96, 72]{1, 96} = aten::t"), 1) << text;
}

std::string text_with(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

TEST(FloatProducts, OthersStay) {
  EXPECT_EQ(occurrences(with_float_products(kForward, 0), "graft::float_mm"), 0);
  EXPECT_EQ(occurrences(with_float_products(kForward, 4), "graft::float_mm"), 0);
  // Somebody else reads the floats.
  const auto read = text_with(kForward, "return (%13)", "return (%13, %12)");
  EXPECT_EQ(occurrences(with_float_products(read), "graft::float_mm"), 1);
  // The sum is with floats, and stays one.
  auto floats = text_with(kForward, "\"y\": bf16[2, 36, 96]", "\"y\": f32[2, 36, 96]");
  EXPECT_EQ(occurrences(with_float_products(floats), "graft::float_mm"), 1);
  // What is added is scaled.
  const auto scaled = text_with(kForward, "other=%11)", "other=%11, alpha=2)");
  EXPECT_EQ(occurrences(with_float_products(scaled), "graft::float_mm"), 1);
  // No side is short beside the others.
  EXPECT_EQ(occurrences(with_float_products(R"(graph(%0 "x": bf16[12, 14], %1 "w": f32[14, 12]) {
  %2: f32[12, 14] = aten::_to_copy(self=%0, dtype=f32)
  %3: f32[12, 12] = aten::mm(self=%2, mat2=%1)
  return (%3)
}
)"),
                        "graft::float_mm"),
            0);
}

// Columns of something wider are added as they lie.
TEST(FloatProducts, WhatIsAddedMayHaveGaps) {
  const auto gaps = R"(graph(%0 "t": f32[72, 8], %1 "b": f32[8, 96], %2 "y": bf16[72, 192]) {
  %3: bf16[72, 96]{192, 1} = aten::slice.Tensor(self=%2, dim=1, start=96, end=192)
  %4: bf16[2, 36, 96]{6912, 192, 1} = aten::view(self=%3, size=[2, 36, 96])
  %5: f32[72, 96] = aten::mm(self=%0, mat2=%1)
  %6: f32[2, 36, 96] = aten::view(self=%5, size=[2, 36, 96])
  %7: f32[2, 36, 96] = aten::add.Tensor(self=%4, other=%6)
  %8: bf16[2, 36, 96] = aten::_to_copy(self=%7, dtype=bf16)
  return (%8)
}
)";
  const auto text = with_float_products(gaps);
  EXPECT_NE(text.find("added=%3"), std::string::npos) << text;
  // Where they cannot be seen as a matrix, the product stays.
  const auto turned =
      text_with(text_with(gaps, "%4: bf16[2, 36, 96]{6912, 192, 1} = aten::view(self=%3, size=[2, 36, 96])",
                          "%4: bf16[2, 36, 96]{96, 192, 1} = aten::as_strided(self=%2, size=[2, 36, 96], "
                          "stride=[96, 192, 1], storage_offset=0)"),
                "%3: bf16[72, 96]{192, 1} = aten::slice.Tensor(self=%2, dim=1, start=96, end=192)\n", "");
  EXPECT_EQ(occurrences(with_float_products(turned), "graft::float_mm"), 0);
}

TEST(FloatProducts, TheOperatorRoundsOnce) {
  using Multiply =
      at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, at::ScalarType);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("graft::float_mm", "").typed<Multiply>();
  const auto a = at::randn({9, 4}).to(at::kBFloat16), y = at::randn({9, 7}).to(at::kBFloat16),
             b = at::randn({4, 7});
  const auto product = a.to(at::kFloat).mm(b);
  EXPECT_TRUE(at::equal(op.call(a, b, {}, at::kFloat), product));
  EXPECT_TRUE(at::equal(op.call(a, b, y, at::kBFloat16), (y + product).to(at::kBFloat16)));
}

}  // namespace
}  // namespace graft::passes
