// How operators are looked up. Whether the table is right, tests/oracle/test_op_traits.py asks torch.
#include <gtest/gtest.h>

#include "ir/op_traits.h"
#include "ir/parser.h"

namespace graft::ir {
namespace {

TEST(OpTraits, NamesWithAndWithoutOverload) {
  EXPECT_EQ(kind_of("aten::mul.Tensor"), OpKind::pointwise);
  EXPECT_EQ(kind_of("aten::mul"), OpKind::pointwise);
  EXPECT_EQ(kind_of("aten::sum.dim_IntList"), OpKind::reduction);
  EXPECT_EQ(kind_of("aten::_unsafe_view"), OpKind::view);
  EXPECT_EQ(kind_of("aten::full"), OpKind::creation);
  EXPECT_EQ(kind_of("aten::addmm"), OpKind::matmul);
  EXPECT_EQ(kind_of("aten::convolution_backward"), OpKind::convolution);
  EXPECT_EQ(kind_of("aten::_scaled_dot_product_flash_attention_for_cpu"), OpKind::attention);
  EXPECT_EQ(kind_of("aten::native_dropout"), OpKind::random);
  EXPECT_EQ(kind_of("aten::index.Tensor"), OpKind::gather);
  EXPECT_EQ(kind_of("aten::embedding_dense_backward"), OpKind::scatter);
  EXPECT_EQ(name_of(OpKind::scatter), "scatter");
  EXPECT_EQ(without_overload("aten::sum.dim_IntList"), "aten::sum");
  EXPECT_EQ(without_overload("aten::mm"), "aten::mm");
}

TEST(OpTraits, WhatIsUnknownIsOther) {
  for (const char* op : {"aten::sort", "aten::mul_", "aten::", "mul.Tensor", "mine::mul.Tensor", ""})
    EXPECT_EQ(kind_of(op), OpKind::other) << op;
}

TEST(OpTraits, WhatMustRun) {
  const auto graph = parse(R"(graph(%0 "x": f32[2]) {
  %1: f32[2] = aten::rand_like(self=%0)
  %2: f32[2] = mine::mul(self=%0)
  aten::_assert_async(self=%0)
  %3: f32[2] = aten::_scaled_dot_product_flash_attention_for_cpu(query=%0, dropout_p=0.1)
  %4: f32[2] = aten::_scaled_dot_product_flash_attention_for_cpu(query=%0, dropout_p=0.0)
  %5: f32[2] = aten::mm(self=%0, mat2=%0)
  return ()
}
)");
  std::vector<bool> found;
  for (const auto& node : graph.nodes()) found.push_back(must_run(*node));
  EXPECT_EQ(found, (std::vector<bool>{true, true, true, true, false, false}));
}

TEST(OpTraits, HalvesThatAreAskedForTheirExactValue) {
  const auto graph = parse(R"(graph(%0 "h": f16[2], %1 "b": bf16[2], %2 "x": f32[2]) {
  %3: bool[2] = aten::eq.Tensor(self=%0, other=%1)
  %4: bool[2] = aten::ne.Tensor(self=%2, other=%0)
  %5: bool[2] = aten::eq.Tensor(self=%2, other=%2)
  %6: bool[2] = aten::lt.Tensor(self=%0, other=%1)
  return (%3, %4, %5, %6)
}
)");
  std::vector<std::vector<const Value*>> found;
  for (const auto& node : graph.nodes()) found.push_back(exact_halves(*node));
  const auto *h = graph.inputs()[0].get(), *b = graph.inputs()[1].get();
  EXPECT_EQ(found, (std::vector<std::vector<const Value*>>{{h, b}, {h}, {}, {}}));
}

/// The mean of one number taken from it, as it stands after decomposition; a halved number is not a mean.
TEST(OpTraits, DistancesFromOnesOwnMean) {
  const auto graph = parse(R"(graph(%0 "x": bf16[1, 1], %1 "f": f32[1, 1]) {
  %2: bf16[1, 1] = aten::silu(self=%0)
  %3: f32[1, 1] = aten::_to_copy(self=%2, dtype=f32)
  %4: f32[1, 1] = aten::sum.dim_IntList(self=%3, dim=[0], keepdim=true)
  %5: f32[1, 1] = aten::div.Scalar(self=%4, other=1.0)
  %6: bf16[1, 1] = aten::_to_copy(self=%5, dtype=bf16)
  %7: bf16[1, 1] = aten::mul.Scalar(self=%2, other=0.5)
  %8: bf16[1, 1] = aten::sub.Tensor(self=%2, other=%6)
  %9: bf16[1, 1] = aten::sub.Tensor(self=%2, other=%7)
  %10: f32[1, 1] = aten::sub.Tensor(self=%3, other=%5)
  return (%8, %9, %10)
}
)");
  std::vector<bool> found;
  for (const auto& node : graph.nodes()) found.push_back(is_distance_from_own_mean(*node));
  EXPECT_EQ(found, (std::vector<bool>{false, false, false, false, false, false, true, false, false}));
}

TEST(OpTraits, Reshapes) {
  const auto graph = parse(R"(graph(%0 "x": f32[2, 3]) {
  %1: f32[6] = aten::view(self=%0, size=[6])
  %2: f32[6] = aten::_unsafe_view(self=%0, size=[6])
  %3: f32[6] = aten::reshape(self=%0, shape=[6])
  %4: f32[3, 2]{1, 3} = aten::t(self=%0)
  %5: i32[2, 3] = aten::view.dtype(self=%0, dtype=i32)
  return (%1, %2, %3, %4, %5)
}
)");
  std::vector<bool> found;
  for (const auto& node : graph.nodes()) found.push_back(is_reshape(*node));
  EXPECT_EQ(found, (std::vector<bool>{true, true, true, false, false}));
}

}  // namespace
}  // namespace graft::ir
