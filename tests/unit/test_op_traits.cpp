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

}  // namespace
}  // namespace graft::ir
