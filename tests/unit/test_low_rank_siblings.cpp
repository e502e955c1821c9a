// The halves of adapters: those of layers that read the same have one first half, and nothing else changes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/low_rank_siblings.h"
#include "targets/reference/interpreter.h"

namespace graft::passes {
namespace {

constexpr const char* siblings =
    R"(graph(%0 "x": f32[6, 16], %1 "q": f32[6, 8], %2 "k": f32[6, 24], %3 "a": f32[2, 16], %4 "b": f32[8, 2], %5 "c": f32[3, 16], %6 "d": f32[24, 3], %7 "e": f32[4, 16], %8 "f": f32[24, 4], %9 "s": f32[], %10 "z": f32[], %11 "table": bool[3, 5]) {
  %12: f32[6, 8] = graft::low_rank_add(self=%1, x=%0, a=tensors[%3], b=tensors[%4], scaling=tensors[%9], table=%11, slots=[4])
  %13: f32[6, 24] = graft::low_rank_add(self=%2, x=%0, a=tensors[%5, %7], b=tensors[%6, %8], scaling=tensors[%9, %10], table=%11, slots=[1, 2])
  %14: f32[6, 24] = aten::neg(self=%13)
  return (%12, %14)
}
)";

TEST(LowRankSiblings, HaveOneFirstHalf) {
  const auto before = ir::parse(siblings);
  auto graph = ir::parse(siblings);
  split_low_rank_adds(graph, true);
  ir::verify(graph);
  const auto text = ir::to_string(graph);
  EXPECT_NE(text.find("f32[6, 9] = graft::low_rank_lower(x=%0, a=tensors[%3, %5, %7], "
                      "scaling=tensors[%9, %9, %10], table=%11, slots=[4, 1, 2])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("columns=[0]"), std::string::npos) << text;
  EXPECT_NE(text.find("columns=[2, 5]"), std::string::npos) << text;
  EXPECT_EQ(text.find("low_rank_add"), std::string::npos) << text;
  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    const auto made = at::randn(input->type().sizes);
    inputs.push_back(input->type().dtype == ir::DType::boolean ? made.gt(0) : made);
  }
  const auto want = ref::interpret(before, inputs, {}), got = ref::interpret(graph, inputs, {});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-5)) << i;
}

TEST(LowRankSiblings, AreLeftAsTheyAreWhereThereAreNoHalves) {
  auto graph = ir::parse(siblings);
  split_low_rank_adds(graph, false);
  EXPECT_EQ(ir::to_string(graph), ir::to_string(ir::parse(siblings)));
}

TEST(LowRankSiblings, WhoseWeightIsMadeLaterStayApart) {
  std::string text = siblings;
  text.replace(text.find("a=tensors[%5, %7]"), 17, "a=tensors[%20, %7]");
  const auto at = text.find("  %13:");
  text.insert(at, "  %20: f32[3, 16] = aten::neg(self=%5)\n");
  auto graph = ir::parse(text);
  split_low_rank_adds(graph, true);
  ir::verify(graph);
  const auto made = ir::to_string(graph);
  EXPECT_NE(made.find("f32[6, 2] = graft::low_rank_lower"), std::string::npos) << made;
  EXPECT_NE(made.find("f32[6, 7] = graft::low_rank_lower"), std::string::npos) << made;
}

}  // namespace
}  // namespace graft::passes
