// Products of half precision on machines that have no instructions for them.
#include <gtest/gtest.h>
#include <torch/nn/functional/activation.h>

#include "compiled_check.h"
#include "compiler/lower.h"
#include "graft/compile.h"
#include "ir/verifier.h"
#include "passes/weight_folding.h"
#include "passes/wide_products.h"
#include "targets/targets.h"

namespace graft::passes {
namespace {

using testing_tools::differs;
using testing_tools::numbers_for;

bool all_are_slow(ir::DType) { return true; }
int64_t four(ir::DType) { return 4; }

std::string normal(const ir::Graph& graph) { return ir::to_string(ir::clone(graph)); }

/// After the pass; what the graph gives is nearer to the truth than before, or as near.
ir::Graph widened(const std::string& text) {
  auto graph = ir::parse(text);
  at::manual_seed(5);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(numbers_for(input->type()));
  const auto want = ref::compile(graph, {})->run(inputs);
  widen_products(graph, all_are_slow, four);
  ir::verify(graph);
  const auto interpreted = ref::compile(graph, {})->run(inputs);
  const auto compiled = build(ir::clone(graph), {}, {.cache = false})->run(inputs, /*in_place=*/false);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(differs(interpreted[i], want[i]), "") << "result " << i << " of\n" << text;
    EXPECT_EQ(differs(compiled[i], want[i]), "") << "compiled result " << i << " of\n" << text;
    EXPECT_EQ(compiled[i].strides(), want[i].strides()) << "result " << i << " of\n" << text;
  }
  return graph;
}

void expect_becomes(const std::string& before, const std::string& expected) {
  EXPECT_EQ(normal(widened(before)), normal(ir::parse(expected)));
}

TEST(WideProducts, AProductIsComputedInFloat) {
  expect_becomes(R"(graph(%0 "x": bf16[8, 16], %1 "w": bf16[4, 16]) {
  %2: bf16[16, 4]{1, 16} = aten::t(self=%1)
  %3: bf16[8, 4] = aten::mm(self=%0, mat2=%2)
  return (%3)
}
)",
                 R"(graph(%0 "x": bf16[8, 16], %1 "w": bf16[4, 16]) {
  %2: bf16[16, 4]{1, 16} = aten::t(self=%1)
  %3: f32[8, 16] = aten::_to_copy(self=%0, dtype=f32)
  %4: f32[16, 4]{1, 16} = aten::_to_copy(self=%2, dtype=f32)
  %5: f32[8, 4] = aten::mm(self=%3, mat2=%4)
  %6: bf16[8, 4] = aten::_to_copy(self=%5, dtype=bf16)
  return (%6)
}
)");
}

TEST(WideProducts, FewRowsAreAKernel) {
  expect_becomes(R"(graph(%0 "x": f16[2, 16], %1 "w": f16[4, 16], %2 "b": f16[4]) {
  %3: f16[16, 4]{1, 16} = aten::t(self=%1)
  %4: f16[2, 4] = aten::addmm(self=%2, mat1=%0, mat2=%3)
  return (%4)
}
)",
                 R"(graph(%0 "x": f16[2, 16], %1 "w": f16[4, 16], %2 "b": f16[4]) {
  %3: f16[16, 4]{1, 16} = aten::t(self=%1)
  %4: f32[2, 16] = aten::_to_copy(self=%0, dtype=f32)
  %5: f16[4, 16] = aten::t(self=%3)
  %6: f16[4, 1, 16] = aten::unsqueeze(self=%5, dim=1)
  %7: f32[4, 1, 16] = aten::_to_copy(self=%6, dtype=f32)
  %8: f32[4, 2, 16] = aten::mul.Tensor(self=%7, other=%4)
  %9: f32[4, 2] = aten::sum.dim_IntList(self=%8, dim=[2], keepdim=false)
  %10: f32[2, 4]{1, 2} = aten::t(self=%9)
  %11: f32[4] = aten::_to_copy(self=%2, dtype=f32)
  %12: f32[2, 4]{1, 2} = aten::add.Tensor(self=%10, other=%11)
  %13: f16[2, 4] = aten::_to_copy(self=%12, dtype=f16)
  return (%13)
}
)");
}

TEST(WideProducts, TheWeightOfFewRowsIsReadWhereItLies) {
  const auto graph = widened(R"(graph(%0 "x": bf16[1, 512], %1 "w": bf16[2048, 512]) {
  %2: bf16[512, 2048]{1, 512} = aten::t(self=%1)
  %3: bf16[1, 2048] = aten::mm(self=%0, mat2=%2)
  return (%3)
}
)");
  const auto schedule = codegen::schedule(graph, target_for({}).limits());
  for (const auto& step : schedule.steps) {
    EXPECT_FALSE(step.external);
    for (const auto* value : step.buffers)
      if (value->producer()) EXPECT_LE(value->type().numel(), 2048) << codegen::to_string(schedule);
  }
}

TEST(WideProducts, EveryKindOfProduct) {
  widened(
      R"(graph(%0 "a": bf16[3, 5, 6], %1 "b": bf16[3, 6, 7], %2 "c": bf16[3, 5, 7], %3 "v": bf16[7], %4 "u": bf16[7]) {
  %5: bf16[3, 5, 7] = aten::bmm(self=%0, mat2=%1)
  %6: bf16[3, 5, 7] = aten::baddbmm(self=%2, batch1=%0, batch2=%1, beta=0.5, alpha=2)
  %7: bf16[15, 7] = aten::view(self=%2, size=[15, 7])
  %8: bf16[15] = aten::mv(self=%7, vec=%3)
  %9: bf16[] = aten::dot(self=%3, tensor=%4)
  return (%5, %6, %8, %9)
}
)");
  widened(
      R"(graph(%0 "x": f16[2, 4, 9, 9], %1 "w": f16[6, 4, 3, 3], %2 "b": f16[6], %3 "g": f16[2, 6, 9, 9]) {
  %4: f16[2, 6, 9, 9] = aten::convolution(input=%0, weight=%1, bias=%2, stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=false, output_padding=[0, 0], groups=1)
  %5: f16[2, 4, 9, 9], %6: f16[6, 4, 3, 3], %7: f16[6] = aten::convolution_backward(grad_output=%3, input=%0, weight=%1, bias_sizes=[6], stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=false, output_padding=[0, 0], groups=1, output_mask=[true, true, true])
  return (%4, %5, %6, %7)
}
)");
}

// A copy of what is seen twice, or with gaps, is laid out row by row.
TEST(WideProducts, ViewsWithGapsAndRepetitions) {
  widened(R"(graph(%0 "x": bf16[8, 40], %1 "w": bf16[1, 6, 7]) {
  %2: bf16[8, 12]{40, 1} = aten::slice.Tensor(self=%0, dim=1, start=3, end=15)
  %3: bf16[12, 8]{1, 40} = aten::t(self=%2)
  %4: bf16[8, 8] = aten::mm(self=%2, mat2=%3)
  %5: bf16[5, 6, 7]{0, 7, 1} = aten::expand(self=%1, size=[5, 6, 7])
  %6: bf16[5, 7, 6]{0, 1, 7} = aten::transpose.int(self=%5, dim0=1, dim1=2)
  %7: bf16[5, 6, 6] = aten::bmm(self=%5, mat2=%6)
  return (%4, %7)
}
)");
}

TEST(WideProducts, FloatAndOtherMachinesStay) {
  const auto expect_same = [](const std::string& text, const std::function<bool(ir::DType)>& is_slow) {
    auto graph = ir::parse(text);
    widen_products(graph, is_slow, four);
    EXPECT_EQ(normal(graph), normal(ir::parse(text)));
  };
  expect_same(R"(graph(%0 "x": f32[8, 16], %1 "w": f32[16, 4]) {
  %2: f32[8, 4] = aten::mm(self=%0, mat2=%1)
  return (%2)
}
)",
              all_are_slow);
  const std::string half = R"(graph(%0 "x": bf16[8, 16], %1 "w": bf16[16, 4]) {
  %2: bf16[8, 4] = aten::mm(self=%0, mat2=%1)
  return (%2)
}
)";
  expect_same(half, [](ir::DType dtype) { return dtype == ir::DType::f16; });
}

TEST(WideProducts, FewRowsAreAKernelAlsoWhereProductsAreFast) {
  for (const int rows : {2, 3}) {
    auto graph = ir::parse("graph(%0 \"x\": bf16[" + std::to_string(rows) +
                           R"(, 16], %1 "w": bf16[4, 16]) {
  %2: bf16[16, 4]{1, 16} = aten::t(self=%1)
  %3: bf16[)" + std::to_string(rows) +
                           R"(, 4] = aten::mm(self=%0, mat2=%2)
  return (%3)
}
)");
    widen_products(graph, [](ir::DType) { return false; }, [](ir::DType) { return 2; });
    EXPECT_EQ(ir::to_string(graph).find("aten::mm") == std::string::npos, rows == 2);
  }
}

// What half precision saves is not given back for the sake of speed.
TEST(WideProducts, WeightsAreNotKeptInFloat) {
  auto graph = ir::parse(R"(graph(%0 "x": bf16[8, 16], %1 "w": bf16[4, 16]) {
  %2: bf16[16, 4]{1, 16} = aten::t(self=%1)
  %3: bf16[8, 4] = aten::mm(self=%0, mat2=%2)
  return (%3)
}
)");
  widen_products(graph, all_are_slow, four);
  EXPECT_FALSE(fold_weights(graph, {1}, 1000));
}

// The halves of one product, as GPT-2 has them: attention's result lies as its arguments do.
TEST(WideProducts, AttentionOverParts) {
  widened(R"(graph(%0 "x": bf16[2, 9, 96]) {
  %1: bf16[2, 9, 32]{864, 96, 1}, %2: bf16[2, 9, 32]{864, 96, 1}, %3: bf16[2, 9, 32]{864, 96, 1} = aten::split.Tensor(self=%0, split_size=32, dim=2)
  %4: bf16[2, 9, 4, 8]{864, 96, 8, 1} = aten::view(self=%1, size=[2, 9, 4, 8])
  %5: bf16[2, 4, 9, 8]{864, 8, 96, 1} = aten::transpose.int(self=%4, dim0=1, dim1=2)
  %6: bf16[2, 9, 4, 8]{864, 96, 8, 1} = aten::view(self=%2, size=[2, 9, 4, 8])
  %7: bf16[2, 4, 9, 8]{864, 8, 96, 1} = aten::transpose.int(self=%6, dim0=1, dim1=2)
  %8: bf16[2, 9, 4, 8]{864, 96, 8, 1} = aten::view(self=%3, size=[2, 9, 4, 8])
  %9: bf16[2, 4, 9, 8]{864, 8, 96, 1} = aten::transpose.int(self=%8, dim0=1, dim1=2)
  %10: bf16[2, 4, 9, 8]{288, 8, 32, 1}, %11: f32[2, 4, 9]{36, 1, 4} = aten::_scaled_dot_product_flash_attention_for_cpu(query=%5, key=%7, value=%9, is_causal=true)
  %12: bf16[2, 4, 9, 8]{288, 8, 32, 1} = aten::exp(self=%10)
  return (%12)
}
)");
}

TEST(WideProducts, AttentionForwardAndBackward) {
  namespace F = torch::nn::functional;
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    at::manual_seed(1);
    const auto make = [&] { return at::randn({2, 4, 12, 8}).to(dtype).requires_grad_(); };
    const auto q = make(), k = make(), v = make(), g = at::randn({2, 4, 12, 8}).to(dtype);
    const auto attend = [](at::Tensor a, at::Tensor b, at::Tensor c) {
      return at::scaled_dot_product_attention(a, b, c, {}, 0, /*is_causal=*/true);
    };
    const auto want = attend(q, k, v);
    const auto want_grads = torch::autograd::grad({want}, {q, k, v}, {g});
    auto fast = graft::compile(attend, {.fullgraph = true, .cache = false});
    for (int call = 0; call < 3; ++call) {
      const auto got = fast(q, k, v);
      EXPECT_EQ(differs(got, want), "");
      const auto grads = torch::autograd::grad({got}, {q, k, v}, {g});
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(differs(grads[i], want_grads[i]), "") << i;
    }
  }
}

// torch gives oneDNN up for good where a product of bfloat16 fails: what is compiled needs it still.
TEST(WideProducts, OneDnnIsLeftAsItWas) {
  auto& torch = at::globalContext();
  for (const bool on : {true, false}) {
    torch.setUserEnabledMkldnn(on);
    const auto fast =
        graft::compile([](at::Tensor x) { return at::mm(x, x); }, {.fullgraph = true, .cache = false});
    const auto x = at::randn({64, 64}).to(at::kBFloat16);
    fast(x), fast(x), fast(x);
    EXPECT_EQ(torch.userEnabledMkldnn(), on);
  }
  torch.setUserEnabledMkldnn(true);
}

}  // namespace
}  // namespace graft::passes
