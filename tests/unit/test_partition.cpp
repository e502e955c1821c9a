// The cut of a joint graph: small graphs as text, before and after, and random ones that are run.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "autograd/absent_tangents.h"
#include "autograd/common_history.h"
#include "autograd/partition.h"
#include "autograd/recompute.h"
#include "compiler/lower.h"
#include "graft/error.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "scalar_graph.h"
#include "targets/targets.h"

namespace graft::autograd {
namespace {

std::string text_of(const ir::Graph& graph) { return to_string(graph); }

TEST(CommonHistory, IsWhereTwoGradientsMeetWhatWasSaved) {
  // The first two meet at %3, and at an exponential that needs its result; the third is added to them after.
  const auto joint = ir::parse(R"(graph(%0 "x": f32[4], %1 "t0": f32[4], %2 "t1": f32[4], %3 "t2": f32[4]) {
  %4: f32[4] = aten::exp(self=%0)
  %5: f32[4] = aten::mul.Tensor(self=%1, other=%4)
  %6: f32[4] = aten::neg(self=%2)
  %7: f32[4] = aten::add.Tensor(self=%5, other=%6)
  %8: f32[4] = aten::mul.Tensor(self=%7, other=%4)
  %9: f32[4] = aten::zeros_like(self=%0)
  %10: f32[4] = aten::add.Tensor(self=%3, other=%9)
  %11: f32[4] = aten::add.Tensor(self=%8, other=%10)
  return (%4, %11)
}
)");
  using Flags = std::vector<std::vector<bool>>;
  EXPECT_EQ(common_history(joint, {1, 2, 3}),
            (Flags{{true, true, false}, {true, true, false}, {false, false, false}}));
}

TEST(Partition, WhatIsCheapIsRunAgain) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[4, 8], %1 "w": f32[8, 8], %2 "t": f32[4, 8]) {
  %3: f32[4, 8] = aten::mm(self=%0, mat2=%1)  # layer
  %4: f32[4, 8] = aten::sigmoid(self=%3)  # layer.act
  %5: f32[4, 8] = aten::mul.Tensor(self=%3, other=%4)
  %6: f32[4, 8] = aten::mul.Tensor(self=%2, other=%4)
  %7: f32[4, 8] = aten::mul.Tensor(self=%2, other=%3)
  return (%5, %6, None, %7)
}
)");
  const auto made = partition(joint, 1, {2});
  EXPECT_EQ(text_of(made.forward), R"(graph(%0 "x": f32[4, 8],
      %1 "w": f32[8, 8]) {
  %2: f32[4, 8] = aten::mm(self=%0, mat2=%1)  # layer
  %3: f32[4, 8] = aten::sigmoid(self=%2)  # layer.act
  %4: f32[4, 8] = aten::mul.Tensor(self=%2, other=%3)
  return (%4, %2)
}
)");
  EXPECT_EQ(text_of(made.backward), R"(graph(%0 "saved.0": f32[4, 8],
      %1 "t": f32[4, 8]) {
  %2: f32[4, 8] = aten::sigmoid(self=%0)  # layer.act
  %3: f32[4, 8] = aten::mul.Tensor(self=%1, other=%2)
  %4: f32[4, 8] = aten::mul.Tensor(self=%1, other=%0)
  return (%3, None, %4)
}
)");
  EXPECT_EQ(made.saved, 1u);
  EXPECT_EQ(made.saved_bytes, 4 * 8 * 4);
  EXPECT_EQ(made.recomputed, 1u);
  EXPECT_EQ(made.forward_inputs, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(made.backward_inputs.empty());

  const auto saving = partition(joint, 1, {2}, {.recompute = false});
  EXPECT_EQ(saving.saved_bytes, 2 * 4 * 8 * 4);
  EXPECT_EQ(saving.recomputed, 0u);
}

// Was computed twice: the second time costs a library as much as the first.
TEST(Partition, WhatALibraryComputesIsNotRunAgain) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[4, 8], %1 "t": f32[4, 8]) {
  %2: f32[4, 8], %3: f32[4, 8] = aten::log_sigmoid_forward(self=%0)
  %4: f32[4, 8] = aten::log_sigmoid_backward(grad_output=%1, self=%0, buffer=%3)
  return (%2, %4)
}
)");
  EXPECT_EQ(partition(joint, 1, {1}).recomputed, 1u);
  const auto made = partition(joint, 1, {1}, {.is_library_call = [](const ir::Node&) { return true; }});
  EXPECT_EQ(made.recomputed, 0u);
  EXPECT_EQ(made.saved_bytes, 4 * 8 * 4);
}

TEST(Partition, InputsAreTakenAsTheyAreAndViewsAreMadeAgain) {
  const auto joint = ir::parse(R"(graph(%0 "w": f32[8, 8], %1 "x": f32[4, 8], %2 "t": f32[4, 8]) {
  %3: f32[8, 8]{1, 8} = aten::t(self=%0)
  %4: f32[4, 8] = aten::mm(self=%1, mat2=%3)
  %5: f32[8, 4]{1, 8} = aten::t(self=%4)
  %6: f32[4, 8] = aten::t(self=%5)
  %7: f32[4, 8] = aten::sum(self=%6)
  %8: f32[8, 8] = aten::mm(self=%5, mat2=%2)
  %9: f32[4, 8] = aten::mul.Tensor(self=%6, other=%2)
  %10: f32[4, 8] = aten::mm(self=%2, mat2=%3)
  return (%7, %8, %9, %10, %0)
}
)");
  const auto made = partition(joint, 1, {2});
  EXPECT_EQ(text_of(made.backward), R"(graph(%0 "saved.0": f32[4, 8],
      %1 "w": f32[8, 8],
      %2 "t": f32[4, 8]) {
  %3: f32[8, 4]{1, 8} = aten::t(self=%0)
  %4: f32[8, 8] = aten::mm(self=%3, mat2=%2)
  %5: f32[4, 8] = aten::t(self=%3)
  %6: f32[4, 8] = aten::mul.Tensor(self=%5, other=%2)
  %7: f32[8, 8]{1, 8} = aten::t(self=%1)
  %8: f32[4, 8] = aten::mm(self=%2, mat2=%7)
  return (%4, %6, %8, %1)
}
)");
  EXPECT_EQ(made.backward_inputs, (std::vector<size_t>{0}));
  EXPECT_EQ(made.saved_bytes, 4 * 8 * 4);
  EXPECT_EQ(made.recomputed, 0u);
}

// A decomposed normalisation: the large input and the small statistics are saved, the rest is run again.
TEST(Partition, StatisticsAreSavedAndNormalisedValuesAreNot) {
  const auto joint = ir::parse(R"(graph(%0 "w": f32[16, 64], %1 "x": f32[8, 16], %2 "t": f32[8, 64]) {
  %3: f32[8, 64] = aten::mm(self=%1, mat2=%0)
  %4: f32[8, 1] = aten::mean.dim(self=%3, dim=[1], keepdim=true)
  %5: f32[8, 64] = aten::sub.Tensor(self=%3, other=%4)
  %6: f32[8, 64] = aten::tanh(self=%5)
  %7: f32[8, 64] = aten::mul.Tensor(self=%2, other=%6)
  %8: f32[8, 64] = aten::mul.Tensor(self=%7, other=%5)
  %9: f32[8, 64] = aten::mul.Tensor(self=%8, other=%3)
  %10: f32[8, 64] = aten::neg(self=%6)
  return (%10, %9)
}
)");
  const auto made = partition(joint, 1, {2});
  EXPECT_EQ(made.saved, 2u);
  EXPECT_EQ(made.saved_bytes, (8 * 64 + 8) * 4);
  EXPECT_EQ(made.recomputed, 2u);
}

TEST(Partition, MutatedInputsAreSavedAsClones) {
  const auto joint = ir::parse(R"(graph(%0 "mean": f32[8], %1 "t": f32[8]) {
  %2: f32[8] = aten::add.Tensor(self=%0, other=1)
  %3: f32[8] = aten::mul.Tensor(self=%1, other=%0)
  return (%2, %3)
}
)");
  EXPECT_EQ(partition(joint, 1, {1}).backward_inputs, (std::vector<size_t>{0}));
  const auto made = partition(joint, 1, {1}, {.mutated_inputs = {0}});
  EXPECT_TRUE(made.backward_inputs.empty());
  EXPECT_EQ(text_of(made.forward), R"(graph(%0 "mean": f32[8]) {
  %1: f32[8] = aten::add.Tensor(self=%0, other=1)
  %2: f32[8] = aten::clone(self=%0, memory_format=None)
  return (%1, %2)
}
)");
}

TEST(Partition, WhatOnlyTheBackwardNeedsRunsThere) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[8, 8], %1 "t": f32[8, 8]) {
  %2: f32[8, 8] = aten::exp(self=%0)
  %3: f32[8, 8] = aten::cos(self=%0)
  %4: f32[8, 8] = aten::mm(self=%1, mat2=%3)
  %5: f32[8, 8] = aten::mm(self=%0, mat2=%0)
  %6: f32[8, 8] = aten::mul.Tensor(self=%4, other=%5)
  return (%2, %6)
}
)");
  const auto made = partition(joint, 1, {1});
  EXPECT_EQ(made.forward.nodes().size(), 1u);
  EXPECT_EQ(made.backward.nodes().size(), 4u);
  EXPECT_EQ(made.saved, 0u);
  EXPECT_EQ(made.recomputed, 0u);
}

TEST(Partition, WhatMustRunRunsOnceAndInOrder) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[8], %1 "t": f32[8]) {
  %2: f32[8] = aten::rand_like(self=%0)
  %3: f32[8], %4: bool[8] = aten::native_dropout(input=%0, p=0.5, train=true)
  test::note(x=%3)
  %5: f32[8] = aten::bernoulli(self=%0)
  %6: f32[8] = aten::native_dropout_backward(grad_output=%1, mask=%4, scale=2.0)
  %7: f32[8] = aten::rand_like(self=%0)
  %8: f32[8] = aten::add.Tensor(self=%6, other=%0)
  return (%3, %6)
}
)");
  const auto made = partition(joint, 1, {1});
  EXPECT_EQ(text_of(made.forward), R"(graph(%0 "x": f32[8]) {
  %1: f32[8] = aten::rand_like(self=%0)
  %2: f32[8], %3: bool[8] = aten::native_dropout(input=%0, p=0.5, train=true)
  test::note(x=%2)
  %4: f32[8] = aten::bernoulli(self=%0)
  return (%2, %3)
}
)");
  EXPECT_EQ(text_of(made.backward), R"(graph(%0 "saved.0": bool[8],
      %1 "x": f32[8],
      %2 "t": f32[8]) {
  %3: f32[8] = aten::native_dropout_backward(grad_output=%2, mask=%0, scale=2.0)
  %4: f32[8] = aten::rand_like(self=%1)
  return (%3)
}
)");
}

constexpr auto kReadByProduct = R"(graph(%0 "x": f32[8, 8], %1 "w": f32[8, 8], %2 "t": f32[8, 8]) {
  %3: f32[8, 8] = aten::mm(self=%0, mat2=%1)
  %4: f32[8, 8] = aten::gelu(self=%3, approximate="none")
  %5: f32[8, 8] = aten::mm(self=%4, mat2=%1)
  %6: f32[8, 8]{1, 8} = aten::t(self=%4)
  %7: f32[8, 8] = aten::mm(self=%6, mat2=%2)
  %8: f32[8, 8] = aten::gelu_backward(grad_output=%7, self=%3, approximate="none")
  return (%5, %8)
}
)";

TEST(Recompute, AStepComputesAgainBehindItsBoundary) {
  const auto step = ir::parse(R"(graph(%0 "w": f32[8, 8], %1 "x": f32[4, 8]) {
  %2: f32[4, 8] = aten::mm(self=%1, mat2=%0)
  %3: f32[4, 8] = aten::sigmoid(self=%2)
  %4: f32[] = aten::sum(self=%3)
  %5: f32[8, 4]{1, 8} = aten::t(self=%2)
  %6: f32[8, 8] = aten::mm(self=%5, mat2=%3)
  %7: f32[8, 8] = aten::sub.Tensor(self=%0, other=%6)
  return (%4, %7)
}
)");
  const auto joined = with_recomputation(step, 1);
  ir::verify(joined);
  const auto wanted = ir::parse(R"(graph(%0 "w": f32[8, 8], %1 "x": f32[4, 8]) {
  %2: f32[4, 8] = aten::mm(self=%1, mat2=%0)
  %3: f32[4, 8] = aten::sigmoid(self=%2)
  %4: f32[] = aten::sum(self=%3)
  graft::boundary()
  %5: f32[4, 8] = aten::sigmoid(self=%2)
  %6: f32[8, 4]{1, 8} = aten::t(self=%2)
  %7: f32[8, 8] = aten::mm(self=%6, mat2=%5)
  %8: f32[8, 8] = aten::sub.Tensor(self=%0, other=%7)
  return (%4, %8)
}
)");
  EXPECT_EQ(text_of(ir::clone(joined)), text_of(ir::clone(wanted)));
  // No pass joins the two.
  auto core = ir::clone(joined);
  passes::run_passes(passes_for(target_for({})), core);
  int sigmoids = 0;
  for (const auto& node : core.nodes()) sigmoids += node->op() == "aten::sigmoid";
  EXPECT_EQ(sigmoids, 2);
}

TEST(Partition, no_SecondRunOfWhatAProductReads) {
  const auto joint = ir::parse(kReadByProduct);
  EXPECT_EQ(partition(joint, 1, {2}).saved, 2u);
  const auto less = partition(joint, 1, {2}, {.recompute_materialized = true});
  EXPECT_EQ(less.saved, 1u);
  EXPECT_EQ(less.recomputed, 1u);
}

TEST(Partition, no_SecondRunOfProductsReductionsOrStrangers) {
  for (const char* op :
       {"aten::mm", "aten::sum.dim_IntList", "aten::sort", "mine::exp", "aten::bernoulli.p"}) {
    const auto joint = ir::parse(R"(graph(%0 "x": f32[64], %1 "t": f32[64]) {
  %2: f32[64] = )" + std::string(op) +
                                 R"((self=%0)
  %3: f32[64] = aten::mul.Tensor(self=%2, other=%0)
  %4: f32[64] = aten::mul.Tensor(self=%1, other=%2)
  %5: f32[64] = aten::mul.Tensor(self=%4, other=%0)
  return (%3, %5)
}
)");
    const auto made = partition(joint, 1, {1}, {.recompute_materialized = true});
    EXPECT_EQ(made.saved, 1u) << op;
    EXPECT_EQ(made.recomputed, 0u) << op;
  }
}

TEST(Partition, no_SecondCopyBetweenDevices) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[64], %1 "t": f32[64]@cuda:0) {
  %2: f32[64]@cuda:0 = aten::_to_copy(self=%0, device=@cuda:0)
  %3: f32[64]@cuda:0 = aten::mul.Tensor(self=%1, other=%2)
  return (%2, %3)
}
)");
  EXPECT_EQ(partition(joint, 1, {1}).saved, 1u);
}

/// x goes through so many sines; the backward needs what goes in and what comes out.
ir::Graph chain(size_t length) {
  ir::Graph graph;
  const auto type = ir::contiguous(ir::DType::f32, {64});
  ir::Value &x = graph.add_input("x", type), &t = graph.add_input("t", type);
  ir::Value* at = &x;
  for (size_t i = 0; i < length; ++i) at = &graph.add_node("aten::sin", {{"self", at}}, {type}).output();
  graph.add_result(&graph.add_node("aten::neg", {{"self", at}}, {type}).output());
  auto& first = graph.add_node("aten::mul.Tensor", {{"self", &t}, {"other", at}}, {type});
  graph.add_result(
      &graph.add_node("aten::mul.Tensor", {{"self", &first.output()}, {"other", &x}}, {type}).output());
  return graph;
}

TEST(Partition, no_LongChainIsRunAgain) {
  EXPECT_EQ(partition(chain(5), 1, {1}).recomputed, 5u);
  EXPECT_EQ(partition(chain(5), 1, {1}).saved, 0u);
  EXPECT_EQ(partition(chain(20), 1, {1}).recomputed, 0u);
  EXPECT_EQ(partition(chain(20), 1, {1}).saved, 1u);
}

/// A softmax of halves: as it is returned, the backward part has no exponentials.
TEST(Partition, AResultThatTheBackwardReadsIsKept) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[64], %1 "t": f32[64]) {
  %2: f32[64] = aten::exp(self=%0)
  %3: bf16[64] = aten::_to_copy(self=%2, dtype=bf16)
  %4: f32[64] = aten::_to_copy(self=%3, dtype=f32)
  %5: f32[64] = aten::mul.Tensor(self=%1, other=%4)
  return (%3, %5)
}
)");
  const auto made = partition(joint, 1, {1});
  EXPECT_EQ(made.saved, 1u);
  EXPECT_EQ(made.saved_bytes, 2 * 64);
  EXPECT_EQ(made.recomputed, 0u);
}

/// Eager saves no such result, so the caller may write into it before the backward pass.
TEST(Partition, no_ResultIsKeptThatOnlyTheForwardReads) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[64], %1 "t": f32[64]) {
  %2: f32[64] = aten::neg(self=%0)
  %3: f32[64] = aten::exp(self=%2)
  %4: f32[64] = aten::sin(self=%3)
  %5: f32[64] = aten::mul.Tensor(self=%1, other=%3)
  return (%2, %4, %5)
}
)");
  const auto made = partition(joint, 2, {1});
  EXPECT_EQ(made.saved, 0u);
  EXPECT_EQ(made.recomputed, 2u);
}

TEST(Partition, no_PartitionOfWhatMakesNoSense) {
  const auto joint = ir::parse(R"(graph(%0 "x": f32[4, 2]{1, 8}, %1 "t": f32[4, 2]) {
  %2: f32[4, 2] = aten::mul.Tensor(self=%1, other=%0)
  return (%2, %2)
}
)");
  EXPECT_THROW(partition(joint, 1, {1}), UsageError);  // a forward result that needs the tangent
  EXPECT_THROW(partition(joint, 3, {1}), UsageError);
  EXPECT_THROW(partition(joint, 0, {2}), UsageError);
  EXPECT_THROW(partition(joint, 0, {1, 1}), UsageError);
  EXPECT_THROW(partition(joint, 0, {1}, {.mutated_inputs = {1}}), UsageError);
  EXPECT_THROW(partition(joint, 0, {1}, {.mutated_inputs = {0}}), UsageError);  // a clone has other strides
  EXPECT_NO_THROW(partition(joint, 0, {1}));
}

/// Every call is needed by a later call or a result, or must run.
bool has_dead_code(const ir::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [&](const auto& node) {
    return !ir::must_run(*node) && std::ranges::all_of(node->outputs(), [&](const auto& output) {
      return output->users().empty() && !graph.is_result(*output);
    });
  });
}

template <class Predicate>
auto count_calls(const ir::Graph& graph, Predicate counts) {
  return std::ranges::count_if(graph.nodes(), [&](const auto& node) { return counts(*node); });
}

bool is_expensive(const ir::Node& node) {
  const auto kind = ir::kind_of(node.op());
  return kind == ir::OpKind::matmul || kind == ir::OpKind::reduction || kind == ir::OpKind::other;
}

// The model: the joint graph itself, run over numbers. Forward and then backward must give the same, though
// the mutated inputs have other contents by then, and draw the same random numbers in the same order.
RC_GTEST_PROP(Partition, ForwardThenBackwardIsTheJointGraph, ()) {
  const auto made_up = random_joint();
  const auto& joint = made_up.joint.graph;
  const auto inputs = *rc::gen::container<std::vector<double>>(
      joint.inputs().size(), rc::gen::map(rc::gen::inRange(-1000, 1000), [](int i) { return i / 1000.0; }));
  size_t drawn = 0;
  const auto expected = run_scalars(joint, inputs, drawn);

  PartitionOptions options{.mutated_inputs = made_up.mutated};
  options.recompute = *rc::gen::weightedElement<bool>({{4, true}, {1, false}});
  options.recompute_materialized = *rc::gen::arbitrary<bool>();
  const auto made = partition(made_up.joint, options);
  RC_TAG(made.recomputed > 0 ? "some run again" : "none run again");
  RC_ASSERT(!has_dead_code(made.forward));
  RC_ASSERT(!has_dead_code(made.backward));
  RC_ASSERT(count_calls(made.forward, ir::must_run) + count_calls(made.backward, ir::must_run) ==
            count_calls(joint, ir::must_run));
  RC_ASSERT(count_calls(made.forward, is_expensive) + count_calls(made.backward, is_expensive) <=
            count_calls(joint, is_expensive));

  size_t drawn_again = 0;
  std::vector<double> forward_inputs;
  for (const size_t i : made.forward_inputs) forward_inputs.push_back(inputs[i]);
  auto results = run_scalars(made.forward, forward_inputs, drawn_again);
  RC_ASSERT(results.size() == made_up.joint.forward_results + made.saved);

  std::vector<double> memory = inputs;
  for (const size_t i : made_up.mutated) memory[i] = 1e6;
  std::vector<double> backward_inputs(results.end() - static_cast<std::ptrdiff_t>(made.saved), results.end());
  for (const size_t i : made.backward_inputs) backward_inputs.push_back(memory[i]);
  for (const size_t i : made_up.joint.tangent_inputs) backward_inputs.push_back(inputs[i]);
  const auto gradients = run_scalars(made.backward, backward_inputs, drawn_again);

  results.resize(made_up.joint.forward_results);
  results.insert(results.end(), gradients.begin(), gradients.end());
  RC_ASSERT(results == expected);
  RC_ASSERT(drawn_again == drawn);
}

RC_GTEST_PROP(Partition, SavesNoMoreThanEverythingThatIsNeeded, ()) {
  const auto made_up = random_joint(true);
  const auto least = partition(made_up.joint, {made_up.mutated, true, true});
  const auto fewer = partition(made_up.joint, {made_up.mutated, true, false});
  const auto all = partition(made_up.joint, {made_up.mutated, false, false});
  RC_ASSERT(fewer.saved_bytes <= all.saved_bytes);
  RC_ASSERT(least.saved_bytes <= all.saved_bytes);
  RC_ASSERT(all.saved_bytes <= needed_bytes(made_up));
  RC_TAG(fewer.saved_bytes < all.saved_bytes ? "less" : "as much");
}

TEST(AbsentTangents, WhatComesThroughThemAloneIsNotComputed) {
  const auto backward = ir::parse(R"(graph(%0 "x": f32[4], %1 "t0": f32[4], %2 "t1": f32[4]) {
  %3: f32[4] = aten::mul.Tensor(self=%1, other=%0)
  %4: f32[4] = aten::exp(self=%0)
  %5: f32[4] = aten::mul.Tensor(self=%2, other=%4)
  %6: f32[4] = aten::add.Tensor(self=%3, other=%5, alpha=1)
  %7: f32[8] = aten::cat(tensors=tensors[%5, %3], dim=0)
  return (%6, %5, %7)
}
)");
  const auto made = without_tangents(backward, {false, true});
  EXPECT_EQ(text_of(made.graph), R"(graph(%0 "x": f32[4],
      %1 "t0": f32[4],
      %2 "zeros.0": f32[4]) {
  %3: f32[4] = aten::mul.Tensor(self=%1, other=%0)
  %4: f32[4] = aten::exp(self=%0)
  %5: f32[8] = aten::cat(tensors=tensors[%2, %3], dim=0)
  return (%3, None, %5)
}
)");
  EXPECT_EQ(made.zeros.size(), 1u);
  // Three times the second: not the term as it is.
  const auto scaled = ir::parse(R"(graph(%0 "t0": f32[4], %1 "t1": f32[4]) {
  %2: f32[4] = aten::add.Tensor(self=%0, other=%1, alpha=3)
  return (%2)
}
)");
  EXPECT_EQ(without_tangents(scaled, {false, true}).zeros.size(), 0u);
  EXPECT_EQ(without_tangents(scaled, {true, false}).zeros.size(), 1u);
}

}  // namespace
}  // namespace graft::autograd
