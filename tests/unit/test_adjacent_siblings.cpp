// Products with weights that follow each other in memory: one product, columns of it in place of each, and
// the same results whether the weights still lie so or not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "aten_target.h"
#include "compiler/build.h"
#include "compiler/lower.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/adjacent_siblings.h"
#include "passes/dead_code.h"
#include "passes/low_rank_siblings.h"
#include "passes/wide_products.h"
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

/// One token's queries, keys and values, of heads of 8, each from its own view of x; keys and values go on
/// into a cache. As a decoder has it before equal views are one.
constexpr const char* token =
    R"(graph(%0 "x": bf16[1, 1, 32], %1 "q": bf16[16, 32], %2 "k": bf16[8, 32], %3 "v": bf16[8, 32], %4 "cos": bf16[8], %5 "cache": bf16[1, 1, 4, 8], %6 "place": i64[1]) {
  %7: bf16[1, 32] = aten::view(self=%0, size=[1, 32])
  %8: bf16[32, 8]{1, 32} = aten::t(self=%3)
  %9: bf16[1, 8] = aten::mm(self=%7, mat2=%8)
  %10: bf16[1, 32] = aten::view(self=%0, size=[1, 32])
  %11: bf16[32, 16]{1, 32} = aten::t(self=%1)
  %12: bf16[1, 16] = aten::mm(self=%10, mat2=%11)
  %13: bf16[1, 32] = aten::view(self=%0, size=[1, 32])
  %14: bf16[32, 8]{1, 32} = aten::t(self=%2)
  %15: bf16[1, 8] = aten::mm(self=%13, mat2=%14)
  %16: bf16[1, 1, 2, 8] = aten::view(self=%12, size=[1, 1, 2, 8])
  %17: bf16[1, 2, 1, 8]{16, 8, 16, 1} = aten::transpose.int(self=%16, dim0=1, dim1=2)
  %24: bf16[1, 2, 1, 4]{16, 8, 16, 1} = aten::slice.Tensor(self=%17, dim=-1, start=4)
  %25: bf16[1, 2, 1, 4]{16, 8, 16, 1} = aten::slice.Tensor(self=%17, dim=-1, start=0, end=4)
  %26: bf16[1, 2, 1, 8] = aten::cat(tensors=tensors[%24, %25], dim=-1)
  %18: bf16[1, 2, 1, 8] = aten::mul.Tensor(self=%26, other=%4)
  %19: bf16[1, 1, 1, 8] = aten::view(self=%15, size=[1, 1, 1, 8])
  %20: bf16[1, 1, 1, 8] = aten::mul.Tensor(self=%19, other=%4)
  %21: bf16[1, 1, 4, 8] = aten::index_copy(self=%5, dim=2, index=%6, source=%20)
  %22: bf16[1, 1, 1, 8] = aten::view(self=%9, size=[1, 1, 1, 8])
  %23: bf16[1, 1, 4, 8] = aten::index_copy(self=%5, dim=2, index=%6, source=%22)
  return (%18, %21, %23)
}
)";

std::string with(std::string text, const std::string& old, const std::string& now) {
  text.replace(text.find(old), old.size(), now);
  return text;
}

int64_t two(ir::DType) { return 2; }

ir::Graph few_rows_joined(const std::string& text) {
  auto graph = ir::parse(text);
  join_few_row_siblings(graph, {{1, 2, 3}}, two);
  eliminate_dead_code(graph);
  ir::verify(graph);
  return graph;
}

size_t times(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// In bfloat16, but for rounding.
void expect_same_results(const ir::Graph& before, const ir::Graph& after) {
  at::manual_seed(7);
  std::vector<at::Tensor> inputs;
  for (const auto& input : before.inputs()) {
    const auto& type = input->type();
    const auto numbers = at::randn(type.sizes).mul(0.3);
    if (type.dtype == ir::DType::i64)
      inputs.push_back(at::tensor({2}, at::kLong));
    else if (type.dtype == ir::DType::boolean)
      inputs.push_back(numbers > 0);
    else
      inputs.push_back(numbers.to(type.dtype == ir::DType::f32 ? at::kFloat : at::kBFloat16));
  }
  const auto want = ref::interpret(before, inputs, {}), got = ref::interpret(after, inputs, {});
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].to(at::kFloat), want[i].to(at::kFloat), 3e-2, 3e-2)) << i;
    EXPECT_EQ(got[i].strides(), want[i].strides()) << i;
  }
}

/// What a GPU runs for a graph, with weights that follow each other.
size_t kernels_on_a_gpu(const std::string& text, const Neighbours& neighbours) {
  auto on_gpu = text;
  for (const auto* type : {"bf16[", "i64["})
    for (auto at = on_gpu.find(type); at != std::string::npos; at = on_gpu.find(type, at + 1)) {
      auto end = on_gpu.find(']', at) + 1;
      if (on_gpu[end] == '{') end = on_gpu.find('}', end) + 1;
      on_gpu.insert(end, "@cuda:0");
    }
  auto graph = ir::parse(on_gpu);
  const auto& target = target_of(graph);
  const auto lowered = lower(std::move(graph), target, {}, neighbours);
  return static_cast<size_t>(std::ranges::count_if(lowered.schedule.steps, [](const auto& step) {
    return !step.external || step.external->op() != "graft::side_by_side";
  }));
}

TEST(AdjacentSiblings, OfAFewRowsAreOneKernel) {
  auto graph = few_rows_joined(token);
  const auto text = ir::to_string(graph);
  EXPECT_NE(text.find("bf16[32, 32] = graft::side_by_side(tensors=tensors[%1, %2, %3])"), std::string::npos)
      << text;
  EXPECT_EQ(times(text, "aten::mm("), 1U) << text;
  widen_products(graph, [](ir::DType) { return false; }, two);
  eliminate_dead_code(graph);
  ir::verify(graph);
  const auto kernels = ir::to_string(graph);
  EXPECT_EQ(times(kernels, "aten::mm("), 0U) << kernels;
  EXPECT_EQ(times(kernels, "aten::sum.dim_IntList("), 1U) << kernels;
  expect_same_results(ir::parse(token), graph);
}

std::string with_all(std::string text, const std::string& old, const std::string& now) {
  for (auto at = text.find(old); at != std::string::npos; at = text.find(old, at + now.size()))
    text.replace(at, old.size(), now);
  return text;
}

TEST(AdjacentSiblings, OfAFewRowsStayApartWhereTheyMeetOrAreNoKernels) {
  const auto is_same = [](const std::string& text) {
    return ir::to_string(few_rows_joined(text)) == ir::to_string(ir::parse(text));
  };
  EXPECT_FALSE(is_same(token));
  EXPECT_TRUE(is_same(with_all(token, "bf16", "f32")));  // a library multiplies floats
  auto graph = ir::parse(with_all(gate, "f32", "bf16"));
  const auto before = ir::to_string(graph);
  join_few_row_siblings(graph, {{1, 2}}, two);
  EXPECT_EQ(ir::to_string(graph), before);
}

TEST(AdjacentSiblings, OfAFewRowsWithFunctionsOfTheirOwnStayApart) {
  auto text = with(token, "aten::cat(tensors=tensors[%24, %25], dim=-1)", "aten::exp(self=%17)");
  const auto moved = text.find("  %24: ");
  text.erase(moved, text.find("  %26: ") - moved);
  auto graph = ir::parse(text);
  eliminate_dead_code(graph);
  const auto before = ir::to_string(graph);
  EXPECT_EQ(ir::to_string(few_rows_joined(text)), before);
  EXPECT_EQ(kernels_on_a_gpu(text, {{1, 2, 3}}), kernels_on_a_gpu(text, {}));
}

TEST(AdjacentSiblings, OfAFewRowsReadOneMatrix) {
  auto text = with(token, "%7: bf16[1, 32] = aten::view(self=%0, size=[1, 32])",
                   "%7: bf16[1, 32] = aten::mean.dim(self=%0, dim=[1])");
  text = with(text, "aten::mul.Tensor(self=%19, other=%4)", "aten::view(self=%19, size=[1, 1, 1, 8])");
  const auto joined = ir::to_string(few_rows_joined(text));  // values read another matrix
  EXPECT_NE(joined.find("graft::side_by_side(tensors=tensors[%1, %2])"), std::string::npos) << joined;
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

TEST(AdjacentSiblings, OfAFewRowsHaveTheirAdaptersTogether) {
  std::string text = adapted;
  text = with_all(with_all(with_all(text, "f32", "bf16"), "[6, ", "[2, "), "[2, 3, ", "[2, 1, ");
  for (const std::string name : {"a", "b", "c", "d", "e", "f", "s", "z"})
    text = with(text, '"' + name + "\": bf16", '"' + name + "\": f32");
  text = with(text, "aten::mul.Tensor(self=%19, other=%22)",
              "aten::exp(self=%22)\n  %26: bf16[2, 4] = aten::exp(self=%19)");
  text = with(text, "(%24, %25)", "(%24, %25, %26)");
  auto graph = few_rows_joined(text);
  const auto joined = ir::to_string(graph);
  EXPECT_EQ(times(joined, "aten::mm("), 1U) << joined;
  EXPECT_EQ(times(joined, "graft::low_rank_add("), 1U) << joined;
  widen_products(graph, [](ir::DType) { return false; }, two);
  eliminate_dead_code(graph);
  ir::verify(graph);
  EXPECT_EQ(times(ir::to_string(graph), "aten::mm("), 0U);
}

TEST(AdjacentSiblings, OfATokenAreFewerKernelsOnAGpu) {
  EXPECT_EQ(kernels_on_a_gpu(token, {{1, 2, 3}}) + 1, kernels_on_a_gpu(token, {}));
  // Queries and values alone: what is done with the queries needs a kernel of its own either way.
  EXPECT_EQ(kernels_on_a_gpu(token, {{1, 3}}) + 1, kernels_on_a_gpu(token, {}));
  const auto one = with_all(gate, "f32", "bf16");  // one kernel without it
  EXPECT_EQ(kernels_on_a_gpu(one, {{1, 2}}), kernels_on_a_gpu(one, {}));
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
