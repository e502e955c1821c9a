// Products with weights that follow each other in memory: one product, columns of it in place of each, and
// the same results whether the weights still lie so or not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "aten_target.h"
#include "compiler/build.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/adjacent_siblings.h"
#include "passes/dead_code.h"
#include "passes/low_rank_siblings.h"
#include "runtime/side_by_side.h"
#include "targets/reference/interpreter.h"

namespace graft::passes {
namespace {

int64_t no_kernels(ir::DType) { return 0; }

/// Queries, keys and values of two heads of 4 (keys and values: one), in the order that models have them.
constexpr const char* attention =
    R"(graph(%0 "x": f32[6, 16], %1 "k": f32[4, 16], %2 "q": f32[8, 16], %3 "v": f32[4, 16]) {
  %4: f32[16, 8]{1, 16} = aten::t(self=%2)
  %5: f32[6, 8] = aten::mm(self=%0, mat2=%4)
  %6: f32[2, 3, 8] = aten::view(self=%5, size=[2, 3, 8])
  %7: f32[2, 3, 2, 4] = aten::view(self=%6, size=[2, 3, 2, 4])
  %8: f32[2, 2, 3, 4]{24, 4, 8, 1} = aten::transpose.int(self=%7, dim0=1, dim1=2)
  %9: f32[16, 4]{1, 16} = aten::t(self=%1)
  %10: f32[6, 4] = aten::mm(self=%0, mat2=%9)
  %11: f32[2, 3, 1, 4] = aten::view(self=%10, size=[2, 3, 1, 4])
  %12: f32[2, 1, 3, 4]{12, 4, 4, 1} = aten::transpose.int(self=%11, dim0=1, dim1=2)
  %13: f32[2, 2, 3, 4]{12, 0, 4, 1} = aten::expand(self=%12, size=[2, 2, 3, 4])
  %14: f32[16, 4]{1, 16} = aten::t(self=%3)
  %15: f32[6, 4] = aten::mm(self=%0, mat2=%14)
  %16: f32[6, 2]{4, 1} = aten::slice.Tensor(self=%15, dim=1, start=1, end=3, step=1)
  %17: f32[6]{4} = aten::select.int(self=%16, dim=1, index=1)
  %18: f32[2, 2, 3, 4]{24, 12, 4, 1} = aten::mul.Tensor(self=%8, other=%13)
  %19: f32[6] = aten::exp(self=%17)
  return (%18, %19)
}
)";

std::vector<at::Tensor> inputs_of(const ir::Graph& graph) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(at::randn(input->type().sizes));
  return inputs;
}

/// The same numbers, those of `numbers` one after the other in one storage.
std::vector<at::Tensor> adjacent(std::vector<at::Tensor> inputs, const std::vector<size_t>& numbers) {
  std::vector<at::Tensor> parts;
  for (const auto i : numbers) parts.push_back(inputs[i]);
  const auto all = at::cat(parts);
  int64_t start = 0;
  for (const auto i : numbers) {
    const auto rows = inputs[i].size(0);
    inputs[i] = all.narrow(0, start, rows);
    start += rows;
  }
  return inputs;
}

std::string text_of(const char* text, const Neighbours& neighbours,
                    const std::function<int64_t(ir::DType)>& rows = no_kernels) {
  auto graph = ir::parse(text);
  join_adjacent_siblings(graph, neighbours, rows);
  eliminate_dead_code(graph);
  ir::verify(graph);
  return ir::to_string(graph);
}

bool is_as_before(const char* text, const Neighbours& neighbours,
                  const std::function<int64_t(ir::DType)>& rows = no_kernels) {
  return text_of(text, neighbours, rows) == ir::to_string(ir::parse(text));
}

TEST(AdjacentSiblings, AreOneProductWithViewsOfItsColumns) {
  const auto text = text_of(attention, {{2, 1, 3}});
  for (const char* line : {"f32[16, 16] = graft::side_by_side(tensors=tensors[%2, %1, %3])",
                           "f32[6, 16] = aten::mm(", "f32[6, 8]{16, 1} = aten::slice.Tensor",
                           "start=12, end=16", "f32[2, 2, 3, 4]{48, 4, 16, 1} = aten::transpose.int",
                           "f32[2, 2, 3, 4]{48, 0, 16, 1} = aten::expand", "f32[6]{16} = aten::select.int"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("aten::mm("), text.rfind("aten::mm(")) << text;
}

TEST(AdjacentSiblings, GiveTheSameWhereverTheWeightsLie) {
  const auto before = ir::parse(attention);
  const aten_target::AtenTarget target;
  const auto joined =
      build_for(target, ir::parse(attention), {}, {.cache = false}, {.neighbours = {{2, 1, 3}}});
  ASSERT_NE(joined->describe(), build_for(target, ir::parse(attention), {}, {.cache = false})->describe());
  at::manual_seed(3);
  for (int i = 0; i < 4; ++i) {
    auto inputs = inputs_of(before);
    if (i % 2 == 0) inputs = adjacent(inputs, {2, 1, 3});
    if (i == 3) inputs = adjacent(inputs, {1, 2, 3});  // another order
    const auto want = ref::interpret(before, inputs, {}), got = joined->run(inputs);
    for (size_t r = 0; r < want.size(); ++r) {
      EXPECT_TRUE(at::allclose(got[r], want[r], 1e-5, 1e-5)) << i << " " << r;
      EXPECT_EQ(got[r].strides(), want[r].strides());
    }
    inputs[3].mul_(2);  // in the memory that the program saw
    EXPECT_TRUE(at::allclose(joined->run(inputs)[1], ref::interpret(before, inputs, {})[1], 1e-5, 1e-5)) << i;
  }
}

TEST(AdjacentSiblings, OnlyThoseThatFollowEachOther) {
  EXPECT_TRUE(is_as_before(attention, {}));
  EXPECT_TRUE(is_as_before(attention, {{2}, {1}}));
  const auto two = text_of(attention, {{1, 3}});
  EXPECT_NE(two.find("graft::side_by_side(tensors=tensors[%1, %3])"), std::string::npos) << two;
  EXPECT_NE(two.find("f32[6, 8] = aten::mm("), std::string::npos) << two;
}

constexpr const char* gate =
    R"(graph(%0 "x": f32[2, 4], %1 "gate": f32[6, 4], %2 "up": f32[6, 4]) {
  %3: f32[4, 6]{1, 4} = aten::t(self=%1)
  %4: f32[2, 6] = aten::mm(self=%0, mat2=%3)
  %5: f32[2, 6] = aten::silu(self=%4)
  %6: f32[4, 6]{1, 4} = aten::t(self=%2)
  %7: f32[2, 6] = aten::mm(self=%0, mat2=%6)
  %8: f32[2, 6] = aten::mul.Tensor(self=%5, other=%7)
  return (%8)
}
)";

TEST(AdjacentSiblings, ThatMeetInAKernelOfFewRowsStayApart) {
  EXPECT_TRUE(is_as_before(gate, {{1, 2}}, [](ir::DType) { return 2; }));
  EXPECT_FALSE(is_as_before(gate, {{1, 2}}, [](ir::DType) { return 1; }));
  EXPECT_FALSE(is_as_before(attention, {{2, 1, 3}}, [](ir::DType) { return 1; }));
}

std::string with(std::string text, const std::string& old, const std::string& now) {
  text.replace(text.find(old), old.size(), now);
  return text;
}

TEST(AdjacentSiblings, StayApartWhereColumnsWouldBeSeenOrWrittenOver) {
  const auto result = with(gate, "return (%8)", "return (%8, %7)");
  EXPECT_TRUE(is_as_before(result.c_str(), {{1, 2}}));
  const auto added = with(gate, "aten::mul.Tensor(self=%5, other=%7)", "aten::add.Tensor(self=%5, other=%7)");
  EXPECT_TRUE(is_as_before(added.c_str(), {{1, 2}}));
  const auto flat =
      with(with(gate, "%8: f32[2, 6] = aten::mul.Tensor(self=%5, other=%7)",
                "%9: f32[12] = aten::view(self=%7, size=[12])\n  %8: f32[12] = aten::exp(self=%9)"),
           "return (%8)", "return (%5, %8)");
  EXPECT_TRUE(is_as_before(flat.c_str(), {{1, 2}}));
}

/// Queries with two adapters, keys with none, values with one.
constexpr const char* adapted =
    R"(graph(%0 "x": f32[6, 16], %1 "q": f32[8, 16], %2 "k": f32[4, 16], %3 "v": f32[4, 16], %4 "a": f32[2, 16], %5 "b": f32[8, 2], %6 "c": f32[3, 16], %7 "d": f32[8, 3], %8 "e": f32[1, 16], %9 "f": f32[4, 1], %10 "s": f32[], %11 "z": f32[], %12 "table": bool[2, 4]) {
  %13: f32[16, 8]{1, 16} = aten::t(self=%1)
  %14: f32[6, 8] = aten::mm(self=%0, mat2=%13)
  %15: f32[2, 3, 8] = aten::view(self=%14, size=[2, 3, 8])
  %16: f32[6, 8] = aten::view(self=%15, size=[6, 8])
  %17: f32[6, 8] = graft::low_rank_add(self=%16, x=%0, a=tensors[%4, %6], b=tensors[%5, %7], scaling=tensors[%10, %11], table=%12, slots=[0, 3])
  %18: f32[16, 4]{1, 16} = aten::t(self=%2)
  %19: f32[6, 4] = aten::mm(self=%0, mat2=%18)
  %20: f32[16, 4]{1, 16} = aten::t(self=%3)
  %21: f32[6, 4] = aten::mm(self=%0, mat2=%20)
  %22: f32[6, 4] = graft::low_rank_add(self=%21, x=%0, a=tensors[%8], b=tensors[%9], scaling=tensors[%10], table=%12, slots=[1])
  %23: f32[2, 3, 2, 4] = aten::view(self=%17, size=[2, 3, 2, 4])
  %24: f32[2, 3, 2, 4] = aten::exp(self=%23)
  %25: f32[6, 4] = aten::mul.Tensor(self=%19, other=%22)
  return (%24, %25)
}
)";

TEST(AdjacentSiblings, HaveTheirAdaptersTogether) {
  const auto text = text_of(adapted, {{1, 2, 3}});
  for (const char* line :
       {"f32[6, 16] = graft::low_rank_add(", "a=tensors[%4, %6, %8], b=tensors[%5, %7, %9]",
        "scaling=tensors[%10, %11, %10]", "slots=[0, 3, 1], places=[0, 0, 12]",
        "f32[2, 3, 2, 4]{48, 16, 4, 1} = aten::view"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("low_rank_add("), text.rfind("low_rank_add(")) << text;
  const auto before = ir::parse(adapted);
  at::manual_seed(5);
  auto inputs = inputs_of(before);
  inputs[12] = at::tensor({1, 0, 1, 0, 1, 1, 0, 1}).view({2, 4}).to(at::kBool);
  for (const bool halves : {false, true}) {
    auto graph = ir::parse(text);
    split_low_rank_adds(graph, halves);
    ir::verify(graph);
    const auto want = ref::interpret(before, inputs, {}), got = ref::interpret(graph, inputs, {});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-5)) << i;
  }
}

TEST(SideBySide, IsAViewWhereItCanBe) {
  const auto all = at::randn({9, 4});
  const auto a = all.narrow(0, 1, 3), b = all.narrow(0, 4, 2), c = all.narrow(0, 6, 3);
  const auto joined = runtime::side_by_side({a, b, c});
  EXPECT_TRUE(joined.is_alias_of(all));
  EXPECT_EQ(joined.data_ptr(), a.data_ptr());
  EXPECT_TRUE(at::equal(joined, all.narrow(0, 1, 8)));
  const at::Tensor others[] = {c, a.t().contiguous().t(), b.clone(), all.narrow(0, 4, 2).narrow(1, 0, 3),
                               at::randn({2, 4}, at::kDouble)};
  EXPECT_TRUE(at::equal(runtime::side_by_side({a, others[0]}), at::cat({a, c})));
  EXPECT_TRUE(at::equal(runtime::side_by_side({others[1], b}), at::cat({a, b})));
  EXPECT_TRUE(at::equal(runtime::side_by_side({a, others[2]}), at::cat({a, b})));
  for (const auto& other : others) EXPECT_FALSE(runtime::follows(a, other));
  EXPECT_TRUE(runtime::follows(a, b));
}

}  // namespace
}  // namespace graft::passes
