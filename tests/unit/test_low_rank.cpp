// LoRA adapters by the rows that chose them: against the formula, alone and in a compiled program.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "adapters/low_rank.h"
#include "compiled_check.h"
#include "compiler/build.h"
#include "threads.h"

namespace graft::adapters {
namespace {

using testing_tools::expect_same_for_all_choices;
using testing_tools::Threads;

struct Case {
  at::Tensor y, x, table;
  LowRank adapters;
};

/// The formula, row by row, in double.
at::Tensor formula(const Case& c) {
  auto sum = c.y.to(at::kDouble);
  const auto each = c.x.size(0) / c.table.size(0);
  for (int64_t row = 0; row < sum.size(0); ++row)
    for (size_t i = 0; i < c.adapters.a.size(); ++i) {
      if (!c.table[row / each][c.adapters.slots[i]].item<bool>()) continue;
      const auto low = c.adapters.a[i].to(at::kDouble).mv(c.x[row].to(at::kDouble));
      sum[row] += c.adapters.b[i].to(at::kDouble).mv(low) * c.adapters.scaling[i].item<double>();
    }
  return sum;
}

Case random_case(std::mt19937& random) {
  const auto number = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto batch = number(1, 6), rows = batch * number(1, 40), in = number(1, 70), out = number(1, 70);
  const auto count = number(1, 5), slots = count + number(0, 3);
  Case c;
  c.y = at::randn({rows, out});
  c.x = number(0, 1) ? at::randn({rows, in}) : at::randn({in, rows}).t();
  c.table = at::randint(0, 10, {batch, slots}) < number(0, 10);
  std::vector<int64_t> order(static_cast<size_t>(slots));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (int64_t i = 0; i < count; ++i) {
    const auto rank = number(1, 20);
    c.adapters.a.push_back(at::randn({rank, in}));
    c.adapters.b.push_back(at::randn({out, rank}));
    c.adapters.scaling.push_back(at::randn({}));
    c.adapters.slots.push_back(order[static_cast<size_t>(i)]);
  }
  return c;
}

TEST(LowRank, IsTheFormulaForAnyChoice) {
  std::mt19937 random(7);
  at::manual_seed(7);
  for (int trial = 0; trial < 120; ++trial) {
    const Threads threads(1 + trial % 3);
    const auto c = random_case(random);
    const auto got = low_rank_add(c.y, c.x, c.adapters, c.table).to(at::kDouble), want = formula(c);
    const auto scale = 1 + want.abs().max().item<double>();
    ASSERT_LT((got - want).abs().max().item<double>(), 1e-5 * scale) << "trial " << trial;
  }
}

TEST(LowRank, RowsThatChoseNothingKeepTheirBits) {
  std::mt19937 random(8);
  auto c = random_case(random);
  c.x.fill_(std::numeric_limits<float>::quiet_NaN());
  c.table.zero_();
  EXPECT_TRUE(low_rank_add(c.y, c.x, c.adapters, c.table).equal(c.y));
}

TEST(LowRank, WhatIsNoRoutingTableIsRefused) {
  std::mt19937 random(9);
  const auto c = random_case(random);
  EXPECT_ANY_THROW(low_rank_add(c.y, c.x, c.adapters, at::ones({c.x.size(0) + 1, 9}, at::kBool)));
  EXPECT_ANY_THROW(low_rank_add(c.y.narrow(0, 0, 1).expand({c.x.size(0) + 1, -1}), c.x, c.adapters, c.table));
}

const std::string in_a_program =
    R"(graph(%0 "x": f32[2, 3, 6], %1 "w": f32[6, 5], %2 "a": f32[2, 6], %3 "b": f32[5, 2], %4 "s": f32[], %5 "gates": bool[2, 3]) {
  %6: f32[6, 6] = aten::view(self=%0, size=[6, 6])
  %7: f32[6, 5] = aten::mm(self=%6, mat2=%1)
  %8: f32[2, 3, 5] = aten::view(self=%7, size=[2, 3, 5])
  %9: f32[6, 5] = aten::view(self=%8, size=[6, 5])
  %10: f32[6, 5] = graft::low_rank_add(self=%9, x=%6, a=tensors[%2], b=tensors[%3], scaling=tensors[%4], table=%5, slots=[1])
  %11: f32[6, 5] = aten::tanh(self=%10)
  return (%11)
}
)";

TEST(LowRank, IsAddedInTheProductsMemory) {
  expect_same_for_all_choices(in_a_program);
  const auto program = build(ir::parse(in_a_program), {}, {.cache = false});
  // One buffer of 6 x 5 floats, in a cache line or two: not one for each.
  EXPECT_NE(program->describe().find(" 128 bytes of temporaries"), std::string::npos) << program->describe();
}

TEST(LowRank, LeavesAloneWhatOthersRead) {
  auto text = in_a_program;
  text.replace(text.find("return (%11)"), 12, "%12: f32[2, 3, 5] = aten::exp(self=%8)\n  return (%11, %12)");
  expect_same_for_all_choices(text);
  text = in_a_program;
  text.replace(text.find("return (%11)"), 12, "return (%11, %8)");
  expect_same_for_all_choices(text);
  text = in_a_program;
  text.replace(text.find("return (%11)"), 12, "return (%10)");
  expect_same_for_all_choices(text);
}

// Products onto which another is added: not where the sum is seen otherwise, or reads what it is added to.
TEST(LowRank, ASumIsMadeInPlaceOnlyWhereItMayBe) {
  const std::string start =
      R"(graph(%0 "x": f32[4, 4], %1 "w": f32[4, 4], %2 "b": f32[4, 4], %3 "gates": bool[2, 1]) {
  %4: f32[4, 4] = aten::mm(self=%0, mat2=%1)
)";
  for (
      const char* rest :
      {"  %5: f32[4, 4]{1, 4} = aten::t(self=%4)\n  %6: f32[4, 4] = aten::addmm(self=%5, mat1=%0, mat2=%2)\n",
       "  %6: f32[4, 4] = aten::addmm(self=%4, mat1=%4, mat2=%2)\n",
       "  %5: f32[4, 4]{1, 4} = aten::t(self=%4)\n  %6: f32[4, 4] = aten::addmm(self=%4, mat1=%5, mat2=%2)\n",
       "  %6: f32[4, 4] = graft::low_rank_add(self=%4, x=%4, a=tensors[%1], b=tensors[%2], "
       "scaling=tensors[%7], table=%3, slots=[0])\n"}) {
    auto text = start + rest + "  %8: f32[4, 4] = aten::exp(self=%6)\n  return (%8)\n}\n";
    if (text.find("%7") != std::string::npos)
      text.insert(text.find("  %6"), "  %7: f32[] = aten::sum(self=%0)\n");
    expect_same_for_all_choices(text);
  }
}

}  // namespace
}  // namespace graft::adapters
