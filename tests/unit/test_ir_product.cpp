#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "ir/parser.h"
#include "ir/product.h"

namespace graft::ir {
namespace {

/// Inputs %0 to %6: two matrices, one that lies transposed, two batches, a row, a matrix like the results.
Graph with_call(const std::string& type, const std::string& call) {
  return parse(R"(graph(%0 "a": f32[2, 3], %1 "b": f32[3, 4], %2 "turned": f32[3, 4]{1, 3},
      %3 "many": f32[5, 2, 3], %4 "more": f32[5, 3, 4], %5 "row": f32[4], %6 "c": f32[2, 4]) {
  %7: )" + type +
               " = " + call + "\n  return (%7)\n}\n");
}

std::optional<Product> product_in(const Graph& graph) { return as_product(*graph.nodes().back()); }

TEST(IrProduct, MmMultipliesAndAddsNothing) {
  const auto graph = with_call("f32[2, 4]", "aten::mm(self=%0, mat2=%1)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->a, graph.inputs()[0].get());
  EXPECT_EQ(product->b, graph.inputs()[1].get());
  EXPECT_EQ(product->added, nullptr);
  EXPECT_EQ(product->beta, 1);
  EXPECT_EQ(product->alpha, 1);
  EXPECT_FALSE(product->batched);
  EXPECT_FALSE(product->is_scaled());
}

TEST(IrProduct, BmmIsABatch) {
  const auto graph = with_call("f32[5, 2, 4]", "aten::bmm(self=%3, mat2=%4)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->a, graph.inputs()[3].get());
  EXPECT_EQ(product->b, graph.inputs()[4].get());
  EXPECT_EQ(product->added, nullptr);
  EXPECT_TRUE(product->batched);
}

TEST(IrProduct, AddmmAddsItsSelf) {
  const auto graph = with_call("f32[2, 4]", "aten::addmm(self=%6, mat1=%0, mat2=%1)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->a, graph.inputs()[0].get());
  EXPECT_EQ(product->b, graph.inputs()[1].get());
  EXPECT_EQ(product->added, graph.inputs()[6].get());
  EXPECT_FALSE(product->batched);
  EXPECT_FALSE(product->is_scaled());
}

TEST(IrProduct, BaddbmmNamesItsFactorsOtherwise) {
  const auto graph =
      with_call("f32[5, 2, 4]", "aten::baddbmm(self=%5, batch1=%3, batch2=%4, beta=0.5, alpha=2)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->a, graph.inputs()[3].get());
  EXPECT_EQ(product->b, graph.inputs()[4].get());
  EXPECT_EQ(product->added, graph.inputs()[5].get());
  EXPECT_EQ(product->beta, 0.5);
  EXPECT_EQ(product->alpha, 2);
  EXPECT_TRUE(product->batched);
  EXPECT_TRUE(product->is_scaled());
}

TEST(IrProduct, ScalesAreNumbersOfAnyKind) {
  const std::tuple<const char*, double, double> cases[] = {{"beta=1, alpha=1", 1, 1},
                                                           {"beta=1.0", 1, 1},
                                                           {"alpha=-2", 1, -2},
                                                           {"beta=0, alpha=0.25", 0, 0.25},
                                                           {"beta=true, alpha=false", 1, 0},
                                                           {"beta=inf", HUGE_VAL, 1}};
  for (const auto& [text, beta, alpha] : cases) {
    const auto graph =
        with_call("f32[2, 4]", "aten::addmm(self=%6, mat1=%0, mat2=%1, " + std::string(text) + ")");
    const auto product = product_in(graph);
    ASSERT_TRUE(product) << text;
    EXPECT_EQ(product->beta, beta) << text;
    EXPECT_EQ(product->alpha, alpha) << text;
    EXPECT_EQ(product->is_scaled(), beta != 1 || alpha != 1) << text;
  }
}

TEST(IrProduct, ABiasOfOneDimensionIsWhatIsAdded) {
  const auto graph = with_call("f32[2, 4]", "aten::addmm(self=%5, mat1=%0, mat2=%1)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->added->type().sizes, std::vector<Dim>{4});
}

TEST(IrProduct, TransposedFactorsAreGivenAsTheyLie) {
  const auto graph = with_call("f32[2, 4]", "aten::mm(self=%0, mat2=%2)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->b, graph.inputs()[2].get());
  EXPECT_EQ(product->b->type().strides, (std::vector<Dim>{1, 3}));
}

TEST(IrProduct, OneValueMayBeAllOfIt) {
  const auto graph = parse(R"(graph(%0 "x": f32[3, 3]) {
  %1: f32[3, 3] = aten::addmm(self=%0, mat1=%0, mat2=%0)
  return (%1)
}
)");
  const auto product = product_in(graph);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->a, product->b);
  EXPECT_EQ(product->a, product->added);
}

TEST(IrProduct, no_other_operators) {
  for (const char* call :
       {"aten::mul.Tensor(self=%0, other=%0)", "aten::mv(self=%0, vec=%5)", "aten::matmul(self=%0, other=%1)",
        "aten::linear(input=%0, weight=%1)", "aten::addbmm(self=%6, batch1=%3, batch2=%4)",
        "other::mm(self=%0, mat2=%1)", "aten::mm.dtype(self=%0, mat2=%1, out_dtype=f32)",
        "aten::cat(tensors=tensors[%0, %0], dim=0)"})
    EXPECT_FALSE(product_in(with_call("f32[2, 4]", call))) << call;
}

TEST(IrProduct, no_calls_that_lack_something) {
  for (const char* call :
       {"aten::mm(self=%0)", "aten::mm(self=None, mat2=%1)", "aten::mm(self=tensors[%0], mat2=%1)",
        "aten::addmm(mat1=%0, mat2=%1)", "aten::addmm(self=Undefined, mat1=%0, mat2=%1)",
        "aten::addmm(self=%6, mat1=%0, mat2=%1, beta=%5)",
        "aten::addmm(self=%6, mat1=%0, mat2=%1, alpha=\"1\")"})
    EXPECT_FALSE(product_in(with_call("f32[2, 4]", call))) << call;
}

}  // namespace
}  // namespace graft::ir
