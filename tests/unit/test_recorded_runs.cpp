// Runs that a device records and launches as one, over a device that does so in the tests. The promise: the
// results are those of plain runs, and what a caller has stays as it is.
#include <gtest/gtest.h>

#include "aten_target.h"
#include "compiler/build.h"
#include "graft/error.h"
#include "ir/parser.h"
#include "runtime/routing_table.h"

namespace graft {
namespace {

constexpr const char* layer = R"(graph(%0 "x": f32[6, 8], %1 "w": f32[8, 8]) {
  %2: f32[6, 8] = aten::mm(self=%0, mat2=%1)
  %3: f32[6, 8] = aten::tanh(self=%2)
  %4: f32[6, 8] = aten::mul.Tensor(self=%3, other=%0)
  %5: f32[6] = aten::sum.dim_IntList(self=%4, dim=[1])
  %6: f32[8, 6]{1, 8} = aten::t(self=%0)
  return (%4, %5, %6)
}
)";

class RecordedRuns : public testing::Test {
 protected:
  aten_target::RecordingDevice device;
  aten_target::AtenTarget target{&device};

  std::unique_ptr<Executable> program(const char* text, Bindings bindings = {}) const {
    return build_for(target, ir::parse(text), {}, {.mode = Mode::reduce_overhead, .cache = false},
                     std::move(bindings));
  }
  static std::vector<at::Tensor> wanted(const char* text, const std::vector<at::Tensor>& inputs) {
    return ref::interpret(ir::parse(text), inputs, {});
  }
  static void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-6)) << i;
  }
};

TEST_F(RecordedRuns, InputsThatMoveAreCopiedToWhereTheRecordingReadsThem) {
  const auto run = program(layer);
  const auto w = at::randn({8, 8});
  for (int call = 0; call < 20; ++call) {
    const auto x = at::randn({6, 8});
    const auto got = run->run({x, w});
    expect_same(got, wanted(layer, {x, w}));
    EXPECT_TRUE(got[2].is_alias_of(x));
  }
  EXPECT_LE(device.recorded, 3);
  EXPECT_GE(device.launches, 14);
}

TEST_F(RecordedRuns, WhatACallerKeepsIsNeverWrittenAgain) {
  const auto run = program(layer);
  const auto w = at::randn({8, 8});
  std::vector<std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> kept;
  for (int call = 0; call < 40; ++call) {
    const auto x = at::randn({6, 8});
    auto got = run->run({x, w});
    if (call % 3 == 0) kept.emplace_back(std::move(got), wanted(layer, {x, w}));
    if (kept.size() > 5) kept.erase(kept.begin() + call % 4);
    for (const auto& [results, values] : kept) expect_same(results, values);
  }
  EXPECT_GT(device.launches, 5);
}

TEST_F(RecordedRuns, WhoKeepsAFewNumbersNeedsNoSecondRecording) {
  constexpr const char* text = R"(graph(%0 "x": f32[6, 8], %1 "w": f32[8, 8]) {
  %2: f32[6, 8] = aten::mm(self=%0, mat2=%1)
  %3: f32[6] = aten::sum.dim_IntList(self=%2, dim=[1])
  return (%3)
}
)";
  const auto run = program(text);
  const auto w = at::randn({8, 8}), x = at::randn({6, 8});
  std::vector<std::pair<at::Tensor, at::Tensor>> all;
  for (int call = 0; call < 12; ++call) {
    w.mul_(1.1);
    all.emplace_back(run->run({x, w})[0], wanted(text, {x, w})[0]);
    for (const auto& [got, want] : all) EXPECT_TRUE(at::allclose(got, want, 1e-5, 1e-6));
  }
  EXPECT_EQ(device.recorded, 1);
  EXPECT_GE(device.launches, 9);
}

/// To an element of a product something is added or subtracted, as if a rounding had decided it: in each run,
/// or in every third.
class NoisyDevice : public aten_target::RecordingDevice {
 public:
  int64_t every = 1;
  bool wrong_when_recorded = false;
  void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const override {
    const bool wrong = wrong_when_recorded && aten_target::tape();
    RecordingDevice::multiply_into(out, a, b);
    const auto place = at::from_blob(out.data_ptr(), out.sizes(), out.strides(), out.scalar_type());
    aten_target::do_or_record([this, place, wrong] {
      if (++runs_ % every == 0)
        place.select(0, runs_ % 5).select(0, runs_ % 7).add_(runs_ / every % 2 ? 0.5 : -0.5);
      if (wrong) place.neg_();
    });
  }

 private:
  mutable int64_t runs_ = 0;
};

TEST(RecordedNoise, IsNoReasonToGiveUpAndWrongResultsAre) {
  constexpr const char* text = R"(graph(%0 "x": f32[64, 64], %1 "w": f32[64, 64]) {
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64] = aten::tanh(self=%2)
  %4: f32[64, 64] = aten::mul.Tensor(self=%3, other=%0)
  return (%4)
}
)";
  for (const int64_t every : {1, 3})
    for (const bool wrong : {false, true}) {
      NoisyDevice device;
      device.every = every;
      device.wrong_when_recorded = wrong;
      const aten_target::AtenTarget target(&device);
      const auto run =
          build_for(target, ir::parse(text), {}, {.mode = Mode::reduce_overhead, .cache = false});
      // Products are small and factors of one size: noise is of one size as well.
      const auto w = at::randn({64, 64}) * 0.02, x = at::randn({64, 64}).sign(), want = x.mm(w).tanh() * x;
      for (int call = 0; call < 12; ++call) {
        const auto got = run->run({x, w})[0];
        EXPECT_LE(got.sub(want).abs().gt(1e-4).sum().item<int64_t>(), 1) << every << wrong << " " << call;
      }
      if (wrong)
        EXPECT_EQ(device.launches, 1) << every;  // to compare it
      else
        EXPECT_GE(device.launches, 8) << every;
    }
}

TEST_F(RecordedRuns, AWeightThatIsWrittenIntoIsSeen) {
  const auto run = program(layer);
  const auto w = at::randn({8, 8}), x = at::randn({6, 8});
  for (int call = 0; call < 8; ++call) {
    w.mul_(1.1);
    expect_same(run->run({x, w}), wanted(layer, {x, w}));
  }
  EXPECT_GT(device.launches, 3);
}

TEST_F(RecordedRuns, AViewOfAResultKeepsItsMemoryToo) {
  const auto run = program(layer);
  const auto w = at::randn({8, 8}), x = at::randn({6, 8});
  at::Tensor view, values;
  for (int call = 0; call < 8; ++call) {
    w.add_(0.5);
    auto got = run->run({x, w});
    if (call == 4) {
      view = got[0].t();
      values = view.clone();
    }
  }
  EXPECT_TRUE(at::equal(view, values));
}

TEST_F(RecordedRuns, AFailureIsAnErrorAndTheNextRunIsRight) {
  constexpr const char* text = R"(graph(%0 "table": f32[4, 3], %1 "ids": i64[2]) {
  %2: f32[2, 3] = aten::embedding(weight=%0, indices=%1)
  %3: f32[2, 3] = aten::mul.Tensor(self=%2, other=%2)
  return (%3)
}
)";
  const auto run = program(text);
  const auto table = at::randn({4, 3});
  for (int call = 0; call < 10; ++call) {
    if (call % 3 == 2) {
      EXPECT_THROW(run->run({table, at::tensor({1, 9}, at::kLong)}), Error);
      continue;
    }
    const auto ids = at::tensor({call % 4, 3}, at::kLong);
    expect_same(run->run({table, ids}), wanted(text, {table, ids}));
  }
  EXPECT_GT(device.launches, 3);
}

TEST_F(RecordedRuns, InputsThatCannotBeCopiedAndNeverStayAreLeftToPlainRuns) {
  constexpr const char* text = R"(graph(%0 "x": f32[6, 8]{8, 2}, %1 "w": f32[6, 8]) {
  %2: f32[6, 8] = aten::mul.Tensor(self=%0, other=%1)
  return (%2)
}
)";
  const auto run = program(text);
  const auto w = at::randn({6, 8});
  std::vector<at::Tensor> alive;
  for (int call = 0; call < 40; ++call) {
    alive.push_back(at::randn({6 * 8 + 8 * 2}));
    const auto x = alive.back().as_strided({6, 8}, {8, 2});  // elements overlap
    expect_same(run->run({x, w}), wanted(text, {x, w}));
  }
  EXPECT_LE(device.recorded, 16);
}

// The product stands between what can fail and the write.
constexpr const char* step = R"(graph(%0 "table": f32[4, 4], %1 "ids": i64[2], %2 "sum": f32[2, 4]) {
  %3: f32[2, 4] = aten::embedding(weight=%0, indices=%1)
  %4: f32[2, 4] = aten::mm(self=%3, mat2=%0)
  %5: f32[2, 4] = aten::add.Tensor(self=%2, other=%4)
  return (%5, %4)
}
)";

at::Tensor term(const at::Tensor& table, const at::Tensor& ids) {
  return table.index_select(0, ids).mm(table);
}

TEST_F(RecordedRuns, WhatIsWrittenIntoAnInputIsWrittenOnceInEachRun) {
  const auto run = program(step, {.in_place = {{.result = 0, .input = 2}}});
  const auto table = at::randn({4, 4});
  auto sum = at::zeros({2, 4}), want = at::zeros({2, 4});
  for (int call = 0; call < 12; ++call) {
    const auto ids = at::tensor({call % 4, 3}, at::kLong);
    const auto got = run->run({table, ids, sum}, /*in_place=*/true);
    want += term(table, ids);
    EXPECT_TRUE(got[0].is_alias_of(sum));
    EXPECT_TRUE(at::allclose(sum, want)) << call;
    EXPECT_TRUE(at::allclose(got[1], term(table, ids))) << call;
    if (call == 8) {  // another tensor in its place
      sum = sum.clone();
      want = want.clone();
    }
  }
  EXPECT_GT(device.launches, 8);  // each in two parts
}

TEST_F(RecordedRuns, ARunThatFailsHasChangedNothing) {
  for (const bool guards : {false, true}) {
    device.guards_writes = guards;
    device.launches = device.recorded = device.parts = 0;
    const auto run = program(step, {.in_place = {{.result = 0, .input = 2}}});
    const auto table = at::randn({4, 4}), sum = at::zeros({2, 4}), want = at::zeros({2, 4});
    for (int call = 0; call < 12; ++call) {
      const bool fails = call % 3 == 2;
      const auto ids = at::tensor({call % 4, fails ? 7 : 3}, at::kLong);
      if (fails) {
        EXPECT_THROW(run->run({table, ids, sum}, true), Error);
      } else {
        run->run({table, ids, sum}, true);
        want.add_(term(table, ids));
      }
      EXPECT_TRUE(at::allclose(sum, want)) << call;
    }
    EXPECT_GT(device.launches, 4);
    EXPECT_EQ(device.parts, device.recorded * (guards ? 1 : 2));
  }
}

// Two adapters, each with a product of its own.
constexpr const char* gated =
    R"(graph(%0 "x": f32[4, 8], %1 "u": f32[8, 8], %2 "v": f32[8, 8], %3 "table": bool[4, 2]) {
  %4: f32[4, 8] = aten::mm(self=%0, mat2=%1)
  %5: bool[4]{2} = aten::select.int(self=%3, dim=1, index=0)
  %6: bool[4, 1]{2, 1} = aten::unsqueeze(self=%5, dim=1)
  %7: f32[4, 8] = graft::gate_keep(mask=%6, value=%4, table=%3, slots=[0])
  %8: f32[4, 8] = aten::mm(self=%0, mat2=%2)
  %9: bool[4]{2} = aten::select.int(self=%3, dim=1, index=1)
  %10: bool[4, 1]{2, 1} = aten::unsqueeze(self=%9, dim=1)
  %11: f32[4, 8] = graft::gate_keep(mask=%10, value=%8, table=%3, slots=[1])
  %12: f32[4, 8] = aten::add.Tensor(self=%7, other=%11)
  %13: f32[4, 8] = aten::add.Tensor(self=%12, other=%0)
  return (%13)
}
)";

class RecordedChoices : public RecordedRuns {
 protected:
  const at::Tensor u = at::randn({8, 8}), v = at::randn({8, 8});
  const std::unique_ptr<Executable> run = program(gated);

  /// Of a call whose rows chose these, the number of products that it did.
  int products_of(const std::vector<std::vector<bool>>& rows) {
    const auto host = at::zeros({4, 2}, at::kBool);
    for (int64_t row = 0; row < 4; ++row)
      for (const int64_t slot : {0, 1}) host[row][slot].fill_(static_cast<bool>(rows[row][slot]));
    const auto x = at::randn({4, 8});
    const int before = device.products;
    const auto got = run->run({x, u, v, runtime::routing_table(host, at::kCPU)});
    expect_same(got, wanted(gated, {x, u, v, host}));
    return device.products - before;
  }
  const std::vector<std::vector<bool>> none = std::vector(4, std::vector<bool>{false, false}),
                                       first = std::vector(4, std::vector<bool>{true, false}),
                                       second = std::vector(4, std::vector<bool>{false, true}),
                                       mixed = {{true, false}, {false, true}, {false, false}, {false, true}};
};

TEST_F(RecordedChoices, DoTheWorkOfTheAdaptersThatAreUsed) {
  for (const auto& [rows, products] : {std::pair(none, 0), {first, 1}, {second, 1}, {mixed, 2}})
    for (int call = 0; call < 8; ++call) {
      const int done = products_of(rows);
      if (call > 3) EXPECT_EQ(done, products);
    }
  const int recorded = device.recorded;
  for (int call = 0; call < 20; ++call) products_of(call % 4 == 0 ? none : call % 4 == 1 ? first : mixed);
  EXPECT_EQ(device.recorded, recorded);
}

TEST_F(RecordedChoices, AreServedByALargerRecordingUntilThereIsOne) {
  for (int call = 0; call < 6; ++call) products_of(mixed);
  const int launches = device.launches, recorded = device.recorded;
  EXPECT_EQ(products_of(first), 2);
  EXPECT_EQ(products_of(second), 2);
  EXPECT_EQ(device.launches, launches + 2);
  EXPECT_EQ(device.recorded, recorded);
}

TEST_F(RecordedChoices, OfATableThatWasWrittenIntoAreLookedUpByTheKernelsAlone) {
  const auto table = runtime::routing_table(at::zeros({4, 2}, at::kBool), at::kCPU);
  EXPECT_TRUE(runtime::host_table_of(table).defined());
  EXPECT_TRUE(runtime::host_table_of(table.detach()).defined());
  EXPECT_TRUE(table.is_same(runtime::routing_table(at::zeros({4, 2}, at::kBool), at::kCPU)));
  table.fill_(true);
  EXPECT_FALSE(runtime::host_table_of(table).defined());
  EXPECT_FALSE(runtime::host_table_of(table.clone()).defined());
  EXPECT_FALSE(runtime::routing_table(at::zeros({4, 2}, at::kBool), at::kCPU).any().item<bool>());
  const auto x = at::randn({4, 8});
  for (int call = 0; call < 5; ++call)
    expect_same(run->run({x, u, v, table}), wanted(gated, {x, u, v, table}));
}

}  // namespace
}  // namespace graft
