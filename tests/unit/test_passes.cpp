// Each pass over small graphs: what it makes of them, what it leaves alone; before and after give the same
// results.
#include <gtest/gtest.h>

#include <set>

#include "codegen/lower_tables.h"
#include "compiled_check.h"
#include "compiler/lower.h"
#include "composed_graphs.h"
#include "decomp/decompose.h"
#include "decomp/table.h"
#include "ir/verifier.h"
#include "passes/common_subexpressions.h"
#include "passes/dead_code.h"
#include "passes/early_gather.h"
#include "passes/narrow_siblings.h"
#include "passes/pipeline.h"
#include "passes/plain_creation.h"
#include "passes/sums_into_products.h"
#include "targets/targets.h"

namespace graft::passes {
namespace {

using testing_tools::composed_graphs;
using testing_tools::differs;

/// The text with values numbered anew, so that only the graph counts.
std::string normal(const ir::Graph& graph) { return ir::to_string(ir::clone(graph)); }

std::vector<at::Tensor> results_of(const ir::Graph& graph) {
  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(testing_tools::numbers_for(input->type()));
  return ref::compile(graph, {})->run(inputs);
}

/// Runs the pass; the results stay what they were, also compiled.
ir::Graph after(void (*pass)(ir::Graph&), const std::string& text) {
  auto graph = ir::parse(text);
  const auto want = results_of(graph);
  pass(graph);
  ir::verify(graph);
  const auto got = results_of(graph);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(differs(got[i], want[i]), "") << "result " << i << " of\n" << ir::to_string(graph);
  return graph;
}

void expect_becomes(void (*pass)(ir::Graph&), const std::string& before, const std::string& expected) {
  EXPECT_EQ(normal(after(pass, before)), normal(ir::parse(expected)));
}
void expect_unchanged(void (*pass)(ir::Graph&), const std::string& text) { expect_becomes(pass, text, text); }

// --- dead code

TEST(DeadCode, UnusedCallsGo) {
  expect_becomes(eliminate_dead_code, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %2: f32[3] = aten::sin(self=%1)
  %3: f32[3] = aten::neg(self=%0)
  return (%3)
}
)",
                 R"(graph(%0 "x": f32[3]) {
  %3: f32[3] = aten::neg(self=%0)
  return (%3)
}
)");
}

TEST(DeadCode, no_removal_of_what_is_used_in_part) {
  expect_unchanged(eliminate_dead_code, R"(graph(%0 "x": f32[2, 3]) {
  %1: f32[2], %2: i64[2] = aten::max.dim(self=%0, dim=1)
  return (%2)
}
)");
}

TEST(DeadCode, no_removal_of_random_draws) {
  // What comes after them would draw other numbers.
  expect_unchanged(eliminate_dead_code, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::rand_like(self=%0)
  %2: f32[3] = aten::rand_like(self=%0)
  return (%2)
}
)");
}

// --- early gather

TEST(EarlyGather, BeforeTheArithmetic) {
  expect_becomes(gather_early, R"(graph(%0 "x": f32[5, 7], %1 "m": f32[5, 1], %2 "t": f32[5, 7]) {
  %3: f32[5, 7] = aten::sub.Tensor(self=%0, other=%1)
  %4: f32[5, 7] = aten::exp(self=%3)
  %5: i64[5, 1] = aten::argmax(self=%2, dim=1, keepdim=true)
  %6: f32[5, 1] = aten::gather(self=%4, dim=1, index=%5)
  return (%6)
}
)",
                 R"(graph(%0 "x": f32[5, 7], %1 "m": f32[5, 1], %2 "t": f32[5, 7]) {
  %3: f32[5, 7] = aten::sub.Tensor(self=%0, other=%1)
  %4: f32[5, 7] = aten::exp(self=%3)
  %5: i64[5, 1] = aten::argmax(self=%2, dim=1, keepdim=true)
  %7: f32[5, 1] = aten::gather(self=%0, dim=1, index=%5)
  %8: f32[5, 1] = aten::sub.Tensor(self=%7, other=%1)
  %9: f32[5, 1] = aten::exp(self=%8)
  return (%9)
}
)");
}

TEST(EarlyGather, BeforeACastThatIsSeenInAnotherShape) {
  expect_becomes(gather_early, R"(graph(%0 "x": bf16[2, 3, 7], %1 "m": f32[6, 1], %2 "t": f32[6, 7]) {
  %3: f32[2, 3, 7] = aten::_to_copy(self=%0, dtype=f32)
  %4: f32[6, 7] = aten::view(self=%3, size=[6, 7])
  %5: f32[6, 7] = aten::sub.Tensor(self=%4, other=%1)
  %6: i64[6, 1] = aten::argmax(self=%2, dim=1, keepdim=true)
  %7: f32[6, 1] = aten::gather(self=%5, dim=1, index=%6)
  return (%7)
}
)",
                 R"(graph(%0 "x": bf16[2, 3, 7], %1 "m": f32[6, 1], %2 "t": f32[6, 7]) {
  %3: f32[2, 3, 7] = aten::_to_copy(self=%0, dtype=f32)
  %4: f32[6, 7] = aten::view(self=%3, size=[6, 7])
  %5: f32[6, 7] = aten::sub.Tensor(self=%4, other=%1)
  %6: i64[6, 1] = aten::argmax(self=%2, dim=1, keepdim=true)
  %8: bf16[6, 7] = aten::view(self=%0, size=[6, 7])
  %9: bf16[6, 1] = aten::gather(self=%8, dim=1, index=%6)
  %10: f32[6, 1] = aten::_to_copy(self=%9, dtype=f32)
  %11: f32[6, 1] = aten::sub.Tensor(self=%10, other=%1)
  return (%11)
}
)");
}

TEST(EarlyGather, no_gather_of_a_row_from_a_broadcast) {
  // The second argument is neither whole nor the same along the dimension.
  expect_unchanged(gather_early, R"(graph(%0 "x": f32[5, 7], %1 "w": f32[7], %2 "t": f32[5, 7]) {
  %3: f32[5, 7] = aten::mul.Tensor(self=%0, other=%1)
  %4: i64[5, 1] = aten::argmax(self=%2, dim=1, keepdim=true)
  %5: f32[5, 1] = aten::gather(self=%3, dim=1, index=%4)
  return (%5)
}
)");
}

TEST(EarlyGather, no_more_picks_than_there_are) {
  expect_unchanged(gather_early, R"(graph(%0 "x": f32[5, 2], %1 "t": f32[5, 2]) {
  %2: f32[5, 2] = aten::exp(self=%0)
  %3: f32[5, 2], %4: i64[5, 2] = aten::sort(self=%1, dim=1)
  %5: f32[5, 2] = aten::gather(self=%2, dim=1, index=%4)
  return (%5)
}
)");
}

TEST(EarlyGather, no_reduction_is_passed) {
  expect_unchanged(gather_early, R"(graph(%0 "x": f32[5, 7], %1 "t": f32[5, 7]) {
  %2: f32[5, 7] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  %3: i64[5, 1] = aten::argmax(self=%1, dim=1, keepdim=true)
  %4: f32[5, 1] = aten::gather(self=%2, dim=1, index=%3)
  return (%4)
}
)");
}

// --- common subexpressions

TEST(CommonSubexpressions, EqualCallsAreOne) {
  expect_becomes(merge_common_subexpressions, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %2: f32[3] = aten::exp(self=%0)
  %3: f32[3] = aten::mul.Tensor(self=%1, other=%2)
  return (%3, %2)
}
)",
                 R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %3: f32[3] = aten::mul.Tensor(self=%1, other=%1)
  return (%3, %1)
}
)");
}

TEST(CommonSubexpressions, no_change_of_calls_with_other_literals) {
  const std::string text = R"(graph(%0 "x": f32[3], %1 "y": f32[3]) {
  %2: f32[3] = aten::add.Tensor(self=%0, other=%1, alpha=2)
  %3: f32[3] = aten::add.Tensor(self=%0, other=%1, alpha=3)
  %4: f32[3] = aten::add.Tensor(self=%0, other=%1)
  %5: f32[3] = aten::clamp(self=%0, min=0, max=1)
  %6: f32[3] = aten::clamp(self=%0, min=0, max=2)
  return (%2, %3, %4, %5, %6)
}
)";
  expect_becomes(merge_common_subexpressions, text, text);
}

TEST(CommonSubexpressions, InChains) {
  expect_becomes(merge_common_subexpressions, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %2: f32[3] = aten::sin(self=%1)
  %3: f32[3] = aten::exp(self=%0)
  %4: f32[3] = aten::sin(self=%3)
  return (%2, %4)
}
)",
                 R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)
  %2: f32[3] = aten::sin(self=%1)
  return (%2, %2)
}
)");
}

TEST(CommonSubexpressions, ScopesDoNotCount) {
  const auto graph = after(merge_common_subexpressions, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::exp(self=%0)  # a
  %2: f32[3] = aten::exp(self=%0)  # b
  return (%1, %2)
}
)");
  EXPECT_EQ(graph.nodes().size(), 1U);
}

TEST(CommonSubexpressions, no_merge_of_other_arguments) {
  expect_unchanged(merge_common_subexpressions, R"(graph(%0 "x": f32[2, 3], %1 "y": f32[2, 3]) {
  %2: f32[2, 3] = aten::mul.Scalar(self=%0, other=2)
  %3: f32[2, 3] = aten::mul.Scalar(self=%0, other=2.0)
  %4: f32[2, 3] = aten::mul.Scalar(self=%1, other=2)
  %5: f32[2, 3] = aten::sub.Tensor(self=%0, other=%1)
  %6: f32[2, 3] = aten::sub.Tensor(self=%1, other=%0)
  return (%2, %3, %4, %5, %6)
}
)");
}

TEST(CommonSubexpressions, no_merge_of_random_draws) {
  expect_unchanged(merge_common_subexpressions, R"(graph(%0 "x": f32[3]) {
  %1: f32[3] = aten::rand_like(self=%0)
  %2: f32[3] = aten::rand_like(self=%0)
  return (%1, %2)
}
)");
}

// --- plain creation

TEST(PlainCreation, LikenessesBecomeFull) {
  expect_becomes(make_creation_plain, R"(graph(%0 "x": f32[2, 3]) {
  %1: f32[2, 3] = aten::zeros_like(self=%0)
  %2: f32[2, 3] = aten::ones_like(self=%0)
  %3: f32[2, 3] = aten::full_like(self=%0, fill_value=2.5)
  %4: f32[4] = aten::new_zeros(self=%0, size=[4])
  return (%1, %2, %3, %4)
}
)",
                 R"(graph(%0 "x": f32[2, 3]) {
  %1: f32[2, 3] = aten::full(size=[2, 3], fill_value=0, dtype=f32, device=@cpu)
  %2: f32[2, 3] = aten::full(size=[2, 3], fill_value=1, dtype=f32, device=@cpu)
  %3: f32[2, 3] = aten::full(size=[2, 3], fill_value=2.5, dtype=f32, device=@cpu)
  %4: f32[4] = aten::full(size=[4], fill_value=0, dtype=f32, device=@cpu)
  return (%1, %2, %3, %4)
}
)");
}

TEST(PlainCreation, TheOtherTensorIsNotNeededAnyMore) {
  const auto graph = after(make_creation_plain, R"(graph(%0 "x": f32[2, 3]) {
  %1: f32[2, 3] = aten::exp(self=%0)
  %2: f32[2, 3] = aten::zeros_like(self=%1)
  return (%2)
}
)");
  EXPECT_TRUE(graph.nodes().front()->output().users().empty());
}

TEST(PlainCreation, no_full_for_another_layout) {
  expect_unchanged(make_creation_plain, R"(graph(%0 "x": f32[2, 3]{1, 2}) {
  %1: f32[2, 3]{1, 2} = aten::zeros_like(self=%0)
  return (%1)
}
)");
}

// --- decompositions

/// Has a decomposition and no lowering. (Reductions have both: one over a single element is a copy.)
bool composed(const ir::Node& node) {
  const auto names = decomp::decomposed_operators(), core = codegen::lowered_operators();
  return std::find(names.begin(), names.end(), node.op()) != names.end() &&
         std::find(core.begin(), core.end(), node.op()) == core.end();
}

TEST(Decompose, ResultsAndTypesStay) {
  std::vector<std::string> seen;
  for (const auto& text : composed_graphs()) {
    const auto before = ir::parse(text);
    for (const auto& node : before.nodes()) seen.push_back(node->op());
    const auto graph = after(decomp::decompose, text);
    for (const auto& node : graph.nodes()) EXPECT_FALSE(composed(*node)) << ir::to_string(*node);
    for (size_t i = 0; i < before.results().size(); ++i)
      EXPECT_EQ(graph.results()[i]->type(), before.results()[i]->type()) << "result " << i << " of\n" << text;
    testing_tools::expect_same_both_ways(text);
  }
  for (const auto& name : decomp::decomposed_operators())
    EXPECT_NE(std::find(seen.begin(), seen.end(), name), seen.end())
        << name << " has no graph in composed_graphs()";
}

TEST(Decompose, KeepsTheScope) {
  const auto graph = after(decomp::decompose, R"(graph(%0 "x": f32[4, 5]) {
  %1: f32[4, 5] = aten::_softmax(self=%0, dim=1, half_to_float=false)  # model.attention
  return (%1)
}
)");
  for (const auto& node : graph.nodes()) EXPECT_EQ(node->scope(), "model.attention");
}

TEST(Decompose, no_change_of_empty_tensors) {
  expect_unchanged(decomp::decompose, R"(graph(%0 "x": f32[0, 5]) {
  %1: f32[0, 5] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  %2: f32[5] = aten::mean.dim(self=%0, dim=[0])
  return (%1, %2)
}
)");
}

TEST(Decompose, AGradientThatIsNotComputedIsNoResult) {
  auto graph = ir::parse(
      R"(graph(%0 "g": f32[4, 8], %1 "x": f32[4, 8], %2 "m": f32[4, 1], %3 "r": f32[4, 1], %4 "w": f32[8]) {
  %5: f32[4, 8], %6: f32[8], %7: f32[8] = aten::native_layer_norm_backward(grad_out=%0, input=%1, normalized_shape=[8], mean=%2, rstd=%3, weight=%4, bias=None, output_mask=[true, false, false])
  return (%5, %6, %7)
}
)");
  decomp::decompose(graph);
  ir::verify(graph);
  EXPECT_TRUE(graph.results()[0]);
  EXPECT_FALSE(graph.results()[1]);
  EXPECT_FALSE(graph.results()[2]);
}

/// Outside training a GPU's batch norm keeps the running statistics for its backward pass; a CPU's keeps
/// nothing.
TEST(Decompose, StatisticsThatAGpuKeepsOutsideTraining) {
  auto graph = ir::parse(
      R"(graph(%0 "x": f32[3, 4, 2, 2], %1 "m": f32[4], %2 "v": f32[4]) {
  %3: f32[4] = aten::mul.Tensor(self=%2, other=%2)
  %4: f32[3, 4, 2, 2], %5: f32[4], %6: f32[4] = aten::_native_batch_norm_legit_no_training(input=%0, weight=None, bias=None, running_mean=%1, running_var=%3, momentum=0.1, eps=0.001)
  %7: f32[4] = aten::mul.Scalar(self=%5, other=1)
  return (%7, %6)
}
)");
  decomp::decompose(graph);
  ir::verify(graph);
  const auto want = results_of(ir::parse(R"(graph(%0 "x": f32[3, 4, 2, 2], %1 "m": f32[4], %2 "v": f32[4]) {
  %3: f32[4] = aten::mul.Tensor(self=%2, other=%2)
  %4: f32[4] = aten::mul.Scalar(self=%1, other=1)
  %5: f32[4] = aten::add.Scalar(self=%3, other=0.001, alpha=1)
  %6: f32[4] = aten::rsqrt(self=%5)
  return (%4, %6)
}
)"));
  const auto got = results_of(graph);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(differs(got[i], want[i]), "") << "result " << i;
}

// --- the list of passes

TEST(Pipeline, EveryPassHasItsName) {
  std::set<std::string_view> names;
  for (const auto& list : {joint_passes(), joint_kernel_passes(), passes_for(target_for({}))})
    for (const auto& pass : list) names.insert(pass.name);
  EXPECT_EQ(names, std::set<std::string_view>(pass_names().begin(), pass_names().end()));
  EXPECT_EQ(names.size(), pass_names().size());
}

TEST(Pipeline, ASecondRunChangesNothing) {
  for (const auto& text : composed_graphs()) {
    auto graph = ir::parse(text);
    run_passes(passes_for(target_for({})), graph);
    const auto once = normal(graph);
    run_passes(passes_for(target_for({})), graph);
    EXPECT_EQ(normal(graph), once);
  }
}

/// With each pass left out the results are the same: a pass makes things better, none is needed.
TEST(Pipeline, AnyPassMayBeLeftOut) {
  for (const auto& text : composed_graphs()) {
    const auto before = ir::parse(text);
    const auto want = results_of(before);
    for (const auto& left_out : passes_for(target_for({}))) {
      auto graph = ir::parse(text);
      for (const auto& pass : passes_for(target_for({})))
        if (pass.name != left_out.name) run_pass(pass, graph);
      const auto got = results_of(graph);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(differs(got[i], want[i]), "") << "without " << left_out.name << ", result " << i;
    }
  }
}

// --- narrow siblings

void join_narrow(ir::Graph& graph) { join_narrow_siblings(graph, 32); }

TEST(NarrowSiblings, ProductsOfOneMatrixBecomeOne) {
  expect_becomes(join_narrow,
                 R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[3, 6], %3 "c": f32[1, 6]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %5: f32[4, 2] = aten::mm(self=%0, mat2=%4)
  %6: f32[2, 2, 2] = aten::_unsafe_view(self=%5, size=[2, 2, 2])
  %7: f32[2, 2, 2] = aten::exp(self=%6)
  %8: f32[4, 6] = aten::cat(tensors=tensors[%2, %3], dim=0)
  %9: f32[6, 4]{1, 6} = aten::t(self=%8)
  %10: f32[4, 4] = aten::mm(self=%0, mat2=%9)
  %11: f32[4, 4] = aten::neg(self=%10)
  return (%7, %11)
}
)",
                 R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[3, 6], %3 "c": f32[1, 6]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %20: f32[6, 6] = aten::cat(tensors=tensors[%1, %2, %3], dim=0)
  %21: f32[6, 6]{1, 6} = aten::t(self=%20)
  %22: f32[4, 6] = aten::mm(self=%0, mat2=%21)
  %23: f32[4, 2]{6, 1} = aten::slice.Tensor(self=%22, dim=1, start=0, end=2, step=1)
  %25: f32[4, 4]{6, 1} = aten::slice.Tensor(self=%22, dim=1, start=2, end=6, step=1)
  %24: f32[2, 2, 2]{12, 6, 1} = aten::view(self=%23, size=[2, 2, 2])
  %7: f32[2, 2, 2] = aten::exp(self=%24)
  %8: f32[4, 6] = aten::cat(tensors=tensors[%2, %3], dim=0)
  %9: f32[6, 4]{1, 6} = aten::t(self=%8)
  %11: f32[4, 4] = aten::neg(self=%25)
  return (%7, %11)
}
)");
}

TEST(NarrowSiblings, ReshapesOfReshapesSeeTheColumns) {
  // A linear layer over [2, 2, 6] of the narrow result makes it a matrix again.
  expect_becomes(join_narrow,
                 R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6], %3 "w": f32[2, 5]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %5: f32[4, 2] = aten::mm(self=%0, mat2=%4)
  %6: f32[2, 2, 2] = aten::_unsafe_view(self=%5, size=[2, 2, 2])
  %7: f32[4, 2] = aten::view(self=%6, size=[4, 2])
  %8: f32[4, 5] = aten::mm(self=%7, mat2=%3)
  %9: f32[6, 2]{1, 6} = aten::t(self=%2)
  %10: f32[4, 2] = aten::mm(self=%0, mat2=%9)
  %11: f32[4, 2] = aten::exp(self=%10)
  return (%8, %11)
}
)",
                 R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6], %3 "w": f32[2, 5]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %20: f32[4, 6] = aten::cat(tensors=tensors[%1, %2], dim=0)
  %21: f32[6, 4]{1, 6} = aten::t(self=%20)
  %22: f32[4, 4] = aten::mm(self=%0, mat2=%21)
  %23: f32[4, 2]{4, 1} = aten::slice.Tensor(self=%22, dim=1, start=0, end=2, step=1)
  %24: f32[4, 2]{4, 1} = aten::slice.Tensor(self=%22, dim=1, start=2, end=4, step=1)
  %25: f32[2, 2, 2]{8, 4, 1} = aten::view(self=%23, size=[2, 2, 2])
  %26: f32[4, 2]{4, 1} = aten::view(self=%25, size=[4, 2])
  %8: f32[4, 5] = aten::mm(self=%26, mat2=%3)
  %9: f32[6, 2]{1, 6} = aten::t(self=%2)
  %11: f32[4, 2] = aten::exp(self=%24)
  return (%8, %11)
}
)");
}

TEST(NarrowSiblings, ProductsOfAProductThatWasJoined) {
  expect_becomes(
      join_narrow,
      R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6], %3 "c": f32[3, 2], %4 "d": f32[1, 2]) {
  %5: f32[6, 2]{1, 6} = aten::t(self=%1)
  %6: f32[4, 2] = aten::mm(self=%0, mat2=%5)
  %7: f32[6, 2]{1, 6} = aten::t(self=%2)
  %8: f32[4, 2] = aten::mm(self=%0, mat2=%7)
  %9: f32[2, 3]{1, 2} = aten::t(self=%3)
  %10: f32[4, 3] = aten::mm(self=%6, mat2=%9)
  %11: f32[2, 1]{1, 2} = aten::t(self=%4)
  %12: f32[4, 1] = aten::mm(self=%6, mat2=%11)
  %13: f32[4, 2] = aten::exp(self=%8)
  %14: f32[4, 3] = aten::exp(self=%10)
  %15: f32[4, 1] = aten::exp(self=%12)
  return (%13, %14, %15)
}
)",
      R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6], %3 "c": f32[3, 2], %4 "d": f32[1, 2]) {
  %5: f32[6, 2]{1, 6} = aten::t(self=%1)
  %20: f32[4, 6] = aten::cat(tensors=tensors[%1, %2], dim=0)
  %21: f32[6, 4]{1, 6} = aten::t(self=%20)
  %22: f32[4, 4] = aten::mm(self=%0, mat2=%21)
  %23: f32[4, 2]{4, 1} = aten::slice.Tensor(self=%22, dim=1, start=0, end=2, step=1)
  %24: f32[4, 2]{4, 1} = aten::slice.Tensor(self=%22, dim=1, start=2, end=4, step=1)
  %7: f32[6, 2]{1, 6} = aten::t(self=%2)
  %9: f32[2, 3]{1, 2} = aten::t(self=%3)
  %25: f32[4, 2] = aten::cat(tensors=tensors[%3, %4], dim=0)
  %26: f32[2, 4]{1, 2} = aten::t(self=%25)
  %27: f32[4, 4] = aten::mm(self=%23, mat2=%26)
  %28: f32[4, 3]{4, 1} = aten::slice.Tensor(self=%27, dim=1, start=0, end=3, step=1)
  %29: f32[4, 1]{4, 1} = aten::slice.Tensor(self=%27, dim=1, start=3, end=4, step=1)
  %11: f32[2, 1]{1, 2} = aten::t(self=%4)
  %13: f32[4, 2] = aten::exp(self=%24)
  %14: f32[4, 3] = aten::exp(self=%28)
  %15: f32[4, 1] = aten::exp(self=%29)
  return (%13, %14, %15)
}
)");
}

TEST(NarrowSiblings, no_change_of_results_and_of_other_reshapes) {
  expect_unchanged(join_narrow, R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %5: f32[4, 2] = aten::mm(self=%0, mat2=%4)
  %6: f32[6, 2]{1, 6} = aten::t(self=%2)
  %7: f32[4, 2] = aten::mm(self=%0, mat2=%6)
  %8: f32[8] = aten::view(self=%7, size=[8])
  %9: f32[8] = aten::exp(self=%8)
  return (%5, %9)
}
)");
}

TEST(NarrowSiblings, no_change_where_a_view_turns_the_product) {
  expect_unchanged(join_narrow,
                   R"(graph(%0 "x": f32[4, 6], %1 "a": f32[2, 6], %2 "b": f32[2, 6], %3 "g": f32[4, 3]) {
  %4: f32[6, 2]{1, 6} = aten::t(self=%1)
  %5: f32[4, 2] = aten::mm(self=%0, mat2=%4)
  %6: f32[2, 4]{1, 2} = aten::t(self=%5)
  %7: f32[2, 3] = aten::mm(self=%6, mat2=%3)
  %8: f32[6, 2]{1, 6} = aten::t(self=%2)
  %9: f32[4, 2] = aten::mm(self=%0, mat2=%8)
  %10: f32[4, 2] = aten::exp(self=%9)
  return (%7, %10)
}
)");
}

// --- sums into products

TEST(SumsIntoProducts, TheShorterProductIsAddedOntoTheLonger) {
  expect_becomes(fold_sums_into_products,
                 R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "t": f32[4, 2], %3 "b": f32[2, 5]) {
  %4: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %5: f32[2, 2, 5] = aten::view(self=%4, size=[2, 2, 5])
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %7: f32[2, 2, 5] = aten::_unsafe_view(self=%6, size=[2, 2, 5])
  %8: f32[2, 2, 5] = aten::add.Tensor(self=%5, other=%7)
  return (%8)
}
)",
                 R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "t": f32[4, 2], %3 "b": f32[2, 5]) {
  %4: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %5: f32[2, 2, 5] = aten::view(self=%4, size=[2, 2, 5])
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %7: f32[2, 2, 5] = aten::_unsafe_view(self=%6, size=[2, 2, 5])
  %9: f32[4, 5] = aten::addmm(self=%6, mat1=%2, mat2=%3)
  %10: f32[2, 2, 5] = aten::view(self=%9, size=[2, 2, 5])
  return (%10)
}
)");
}

TEST(SumsIntoProducts, no_change_where_a_product_is_needed_itself) {
  expect_unchanged(fold_sums_into_products,
                   R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "t": f32[4, 2], %3 "b": f32[2, 5]) {
  %4: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %8: f32[4, 5] = aten::add.Tensor(self=%6, other=%4)
  return (%8, %4)
}
)");
}

TEST(SumsIntoProducts, no_change_of_weighted_or_broadcast_sums) {
  expect_unchanged(fold_sums_into_products,
                   R"(graph(%0 "x": f32[1, 6], %1 "w": f32[6, 5], %2 "t": f32[4, 2], %3 "b": f32[2, 5]) {
  %4: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %6: f32[1, 5] = aten::mm(self=%0, mat2=%1)
  %8: f32[4, 5] = aten::add.Tensor(self=%6, other=%4)
  %9: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %10: f32[4, 5] = aten::mm(self=%2, mat2=%3)
  %11: f32[4, 5] = aten::add.Tensor(self=%9, other=%10, alpha=2)
  return (%8, %11)
}
)");
}

}  // namespace
}  // namespace graft::passes
