// What a program may leave out when no row chose an adapter, and what it must not. Every graph is also run:
// with the slot in use, for some rows, and not at all.
#include <gtest/gtest.h>

#include "codegen/predicates.h"
#include "compiled_check.h"
#include "compiler/build.h"
#include "compiler/lower.h"
#include "passes/pipeline.h"
#include "targets/reference/interpreter.h"
#include "targets/targets.h"

namespace graft::codegen {
namespace {

/// The slots that each call waits for, by operator: "aten::mm: 0", "aten::mm: always".
std::vector<std::string> calls_of(const std::string& text) {
  auto graph = ir::parse(text);
  passes::run_passes(passes_for(target_for({})), graph);
  const auto plan = schedule(graph, target_for({}).limits());
  const auto found = predicates(graph, plan);
  std::vector<std::string> calls;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (!plan.steps[i].external) continue;
    std::string slots;
    if (found.steps[i])
      for (const auto slot : *found.steps[i]) slots += (slots.empty() ? "" : ",") + std::to_string(slot);
    calls.push_back(plan.steps[i].external->op() + ": " + (found.steps[i] ? slots : "always"));
  }
  return calls;
}

using testing_tools::expect_same_for_all_choices;
using Calls = std::vector<std::string>;

const std::string lora =
    R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "a": f32[6, 2], %3 "b": f32[2, 5], %4 "gates": bool[4, 3]) {
  %5: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %6: f32[4, 2] = aten::mm(self=%0, mat2=%2)
  %7: f32[4, 5] = aten::mm(self=%6, mat2=%3)
  %8: bool[4]{3} = aten::select.int(self=%4, dim=1, index=1)
  %9: bool[4, 1]{3, 1} = aten::unsqueeze(self=%8, dim=1)
  %10: f32[4, 5] = graft::gate_keep(mask=%9, value=%7, table=%4, slots=[1])
  %11: f32[4, 5] = aten::add.Tensor(self=%5, other=%10)
  return (%11)
}
)";

TEST(Predicates, WhatIsBehindAGateWaits) {
  EXPECT_EQ(calls_of(lora), (Calls{"aten::mm: always", "aten::mm: 1", "aten::mm: 1"}));
  expect_same_for_all_choices(lora);
}

TEST(Predicates, AProductOfZerosIsNotAddedToHalves) {
  const std::string text =
      R"(graph(%0 "x": bf16[4, 6], %1 "w": bf16[6, 5], %2 "a": f32[6, 2], %3 "b": f32[2, 5], %4 "gates": bool[4, 3]) {
  %5: bf16[4, 5] = aten::mm(self=%0, mat2=%1)
  %6: f32[4, 2] = graft::float_mm(a=%0, b=%2, dtype=f32)
  %7: bool[4]{3} = aten::select.int(self=%4, dim=1, index=1)
  %8: bool[4, 1]{3, 1} = aten::unsqueeze(self=%7, dim=1)
  %9: f32[4, 2] = graft::gate_keep(mask=%8, value=%6, table=%4, slots=[1])
  %10: bf16[4, 5] = graft::float_mm(a=%9, b=%3, added=%5, dtype=bf16)
  %11: bf16[4, 5] = aten::neg(self=%10)
  return (%11)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: always", "graft::float_mm: 1", "graft::float_mm: 1"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, HalvesOfAdaptersWaitForThoseWhoseTheyAre) {
  const std::string text =
      R"(graph(%0 "x": f32[4, 6], %1 "q": f32[6, 5], %2 "k": f32[6, 3], %3 "a": f32[2, 6], %4 "b": f32[5, 2], %5 "c": f32[2, 6], %6 "d": f32[3, 2], %7 "s": f32[], %8 "gates": bool[4, 3]) {
  %9: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %10: f32[4, 3] = aten::mm(self=%0, mat2=%2)
  %11: f32[4, 4] = graft::low_rank_lower(x=%0, a=tensors[%3, %5], scaling=tensors[%7, %7], table=%8, slots=[0, 2])
  %12: f32[4, 5] = graft::low_rank_lift(self=%9, t=%11, b=tensors[%4], table=%8, slots=[0], columns=[0])
  %13: f32[4, 3] = graft::low_rank_lift(self=%10, t=%11, b=tensors[%6], table=%8, slots=[2], columns=[2])
  %14: f32[4, 5] = aten::neg(self=%12)
  %15: f32[4, 3] = aten::neg(self=%13)
  return (%14, %15)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: always", "aten::mm: always", "graft::low_rank_lower: 0,2",
                                   "graft::low_rank_lift: 0", "graft::low_rank_lift: 2"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, WhatIsAlsoUsedElsewhereDoesNot) {
  auto text = lora;
  text.replace(text.find("return (%11)"), 12, "return (%11, %6)");
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: always", "aten::mm: always", "aten::mm: 1"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, TheOldValueOfAPutIsNeeded) {
  const std::string text =
      R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "v": f32[6, 5], %4 "gates": bool[4, 2]) {
  %5: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %6: f32[4, 5] = aten::mm(self=%0, mat2=%2)
  %8: bool[4]{2} = aten::select.int(self=%4, dim=1, index=0)
  %9: bool[4, 1]{2, 1} = aten::unsqueeze(self=%8, dim=1)
  %10: f32[4, 5] = graft::gate_put(mask=%9, made=%6, old=%5, table=%4, slots=[0])
  return (%10)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: always", "aten::mm: 0"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, ProductsOfZerosWait) {
  const std::string text =
      R"(graph(%0 "g": f32[4, 5], %1 "b": f32[5, 2], %2 "t": f32[4, 2], %4 "gates": bool[4, 2]) {
  %8: bool[4]{2} = aten::select.int(self=%4, dim=1, index=1)
  %9: bool[4, 1]{2, 1} = aten::unsqueeze(self=%8, dim=1)
  %10: f32[4, 5] = graft::gate_keep(mask=%9, value=%0, table=%4, slots=[1])
  %11: f32[4, 2] = aten::mm(self=%10, mat2=%1)
  %12: f32[5, 4]{1, 5} = aten::t(self=%10)
  %13: f32[5, 2] = aten::mm(self=%12, mat2=%2)
  %14: f32[4, 2] = aten::exp(self=%11)
  return (%14, %13)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: 1", "aten::mm: 1"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, ABatchOfProductsWaitsIfAllItAddsIsZero) {
  const std::string text =
      R"(graph(%0 "x": f32[4, 2, 6], %1 "w": f32[4, 6, 5], %2 "y": f32[4, 2, 5], %4 "gates": bool[4, 2]) {
  %6: bool[4]{2} = aten::select.int(self=%4, dim=1, index=1)
  %7: bool[4, 1]{2, 1} = aten::unsqueeze(self=%6, dim=1)
  %8: bool[4, 1, 1]{2, 1, 1} = aten::unsqueeze(self=%7, dim=2)
  %9: f32[4, 2, 6] = graft::gate_keep(mask=%8, value=%0, table=%4, slots=[1])
  %10: f32[4, 2, 5] = graft::gate_keep(mask=%8, value=%2, table=%4, slots=[1])
  %11: f32[4, 2, 5] = aten::baddbmm(self=%10, batch1=%9, batch2=%1)
  %12: f32[4, 2, 5] = aten::baddbmm(self=%2, batch1=%9, batch2=%1)
  return (%11, %12)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::baddbmm: 1", "aten::baddbmm: always"}));
  expect_same_for_all_choices(text);
}

TEST(Predicates, TwoSlotsWaitForEither) {
  const std::string text =
      R"(graph(%0 "x": f32[4, 6], %1 "w": f32[6, 5], %2 "y": f32[4, 5], %4 "gates": bool[4, 2]) {
  %5: f32[4, 5] = aten::mm(self=%0, mat2=%1)
  %6: bool[4]{2} = aten::select.int(self=%4, dim=1, index=0)
  %7: bool[4, 1]{2, 1} = aten::unsqueeze(self=%6, dim=1)
  %8: bool[4]{2} = aten::select.int(self=%4, dim=1, index=1)
  %9: bool[4, 1]{2, 1} = aten::unsqueeze(self=%8, dim=1)
  %10: f32[4, 5] = graft::gate_put(mask=%7, made=%5, old=%2, table=%4, slots=[0])
  %11: f32[4, 5] = aten::neg(self=%5)
  %12: f32[4, 5] = graft::gate_put(mask=%9, made=%11, old=%10, table=%4, slots=[1])
  return (%12)
}
)";
  EXPECT_EQ(calls_of(text), (Calls{"aten::mm: 0,1"}));
  expect_same_for_all_choices(text);
}

}  // namespace
}  // namespace graft::codegen
