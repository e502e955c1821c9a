// Results that are the new values of inputs are written into them, but only when everybody has read what was
// there and nothing can fail any more.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <functional>

#include "compiled_check.h"
#include "graft/compile.h"
#include "plan/failures.h"
#include "plan/in_place.h"

namespace graft {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(Tensors)>;
using testing_tools::differs;
using testing_tools::tolerance_for;

struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
  Function function;
};

Tensors copies(const Tensors& tensors) {
  Tensors made;
  for (const auto& tensor : tensors) made.push_back(tensor.clone());
  return made;
}

void expect_same(const Tensors& got, const Tensors& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(differs(got[i], want[i], tolerance_for(want[i].scalar_type())), "") << what << " " << i;
}

/// Several calls with other data each: outputs and arguments are eager's, and an output stays as it is when
/// the arguments change afterwards.
void hold_against_eager(const Case& program, const CompileOptions& options) {
  SCOPED_TRACE(std::string(program.name) + (options.verify ? "" : ", not verified"));
  const at::NoGradGuard no_grad;
  const auto fast = compile(program.function, options);
  for (int call = 0; call < 7; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    Tensors mine;
    for (const auto& shape : program.shapes) mine.push_back(at::randn(shape));
    auto eagers = copies(mine);
    const auto got = fast(mine);
    const auto want = program.function(eagers);
    expect_same(got, want, "output");
    expect_same(mine, eagers, "argument");
    for (auto& tensor : mine) tensor.fill_(7);
    for (auto& tensor : eagers) tensor.fill_(7);
    expect_same(got, want, "output after the arguments changed");
  }
}

void hold_all(const std::vector<Case>& cases) {
  for (const auto& each : cases)
    for (const bool verify : {true, false})
      hold_against_eager(each, {.fullgraph = true, .verify = verify, .cache = false});
}

TEST(InPlace, WhatIsReducedAndThenOverwrittenIsReadFirst) {
  hold_all({
      {"sum",
       {{33, 5}},
       [](Tensors t) {
         auto s = t[0].sum();
         t[0].zero_();
         return Tensors{s};
       }},
      {"long sum",
       {{1 << 16}},
       [](Tensors t) {
         auto s = t[0].abs().sum();
         t[0].zero_();
         return Tensors{s};
       }},
      {"row sums",
       {{33, 70}},
       [](Tensors t) {
         auto s = t[0].sum(1);
         t[0].fill_(2);
         return Tensors{s};
       }},
      {"column sums",
       {{33, 70}},
       [](Tensors t) {
         auto s = t[0].sum(0);
         t[0].fill_(2);
         return Tensors{s};
       }},
      {"mean",
       {{40}},
       [](Tensors t) {
         auto s = t[0].mean();
         t[0].mul_(3);
         return Tensors{s};
       }},
      {"argmax",
       {{4, 19}},
       [](Tensors t) {
         auto s = t[0].argmax(1);
         t[0].neg_();
         return Tensors{s};
       }},
      {"max of rows",
       {{9, 19}},
       [](Tensors t) {
         auto [values, places] = t[0].max(1);
         t[0].zero_();
         return Tensors{values, places};
       }},
      {"softmax",
       {{9, 19}},
       [](Tensors t) {
         auto s = t[0].softmax(1);
         t[0].zero_();
         return Tensors{s};
       }},
      {"softmax of itself",
       {{9, 19}},
       [](Tensors t) {
         t[0].copy_(t[0].softmax(1));
         return Tensors{t[0].sum()};
       }},
      {"variance",
       {{9, 190}},
       [](Tensors t) {
         auto s = t[0].var(1);
         t[0].add_(1);
         return Tensors{s};
       }},
      {"less its mean",
       {{9, 19}},
       [](Tensors t) {
         t[0].sub_(t[0].mean(1, true));
         return Tensors{};
       }},
      {"by its largest",
       {{900}},
       [](Tensors t) {
         t[0].div_(t[0].abs().max());
         return Tensors{t[0] + 1};
       }},
      {"running mean",
       {{16}, {8, 16}},
       [](Tensors t) {
         t[0].mul_(0.9).add_(t[1].mean(0), 0.1);
         return Tensors{t[1] - t[0]};
       }},
      {"clone, then overwritten",
       {{50}},
       [](Tensors t) {
         auto c = t[0].clone();
         t[0].copy_(c * 2);
         return Tensors{c};
       }},
      {"flipped",
       {{50}},
       [](Tensors t) {
         t[0].copy_(t[0].flip(0));
         return Tensors{};
       }},
      {"transposed",
       {{12, 12}},
       [](Tensors t) {
         t[0].copy_(t[0].t() + 1);
         return Tensors{};
       }},
      {"a view of it read last",
       {{12, 12}},
       [](Tensors t) {
         auto v = t[0].slice(0, 2, 7) * 2;
         t[0].zero_();
         return Tensors{v, v.sum(0)};
       }},
  });
}

TEST(InPlace, InputsThatFeedEachOtherKeepTheirOldValues) {
  hold_all({
      {"swap",
       {{37}, {37}},
       [](Tensors t) {
         auto c = t[0].clone();
         t[0].copy_(t[1]);
         t[1].copy_(c);
         return Tensors{};
       }},
      {"swap, given back",
       {{37}, {37}},
       [](Tensors t) {
         auto c = t[0] * 1.0;
         t[0].copy_(t[1] + 0.0);
         t[1].copy_(c);
         return Tensors{t[0] + t[1]};
       }},
      {"rotation",
       {{5, 9}, {5, 9}, {5, 9}},
       [](Tensors t) {
         auto c = t[0].clone();
         t[0].copy_(t[1]);
         t[1].copy_(t[2]);
         t[2].copy_(c);
         return Tensors{};
       }},
      {"sum and difference",
       {{64}, {64}},
       [](Tensors t) {
         auto sum = t[0] + t[1], difference = t[0] - t[1];
         t[0].copy_(sum);
         t[1].copy_(difference);
         return Tensors{sum * difference};
       }},
      {"one by the other's row sums",
       {{8, 33}, {8}},
       [](Tensors t) {
         auto sums = t[0].sum(1);
         t[0].mul_(t[1].unsqueeze(1));
         t[1].copy_(sums);
         return Tensors{};
       }},
      {"one reversed into the other",
       {{40}, {40}},
       [](Tensors t) {
         auto c = t[0].clone();
         t[0].copy_(t[1].flip(0));
         t[1].copy_(c.flip(0));
         return Tensors{};
       }},
      {"rotation in products",
       {{6, 6}, {6, 6}},
       [](Tensors t) {
         auto c = t[0].mm(t[1]);
         t[0].copy_(t[1].mm(t[0]));
         t[1].copy_(c.tanh());
         return Tensors{};
       }},
  });
}

// "Cannot access data pointer of Tensor that doesn't have storage", from the third call on.
TEST(InPlace, AnInputLivesUntilItsNewValueIsMade) {
  hold_all({
      {"recurrent state",
       {{4, 8}, {8, 8}, {4, 8}},
       [](Tensors t) {
         t[0].copy_((t[0].mm(t[1]) + t[2]).tanh());
         return Tensors{t[0] * 2};
       }},
      {"product",
       {{8, 8}, {8, 8}},
       [](Tensors t) {
         t[0].copy_(t[0].mm(t[1]));
         return Tensors{};
       }},
      {"roll",
       {{30}},
       [](Tensors t) {
         t[0].copy_(t[0].roll(3));
         return Tensors{t[0] + 1};
       }},
      {"cumsum",
       {{30}},
       [](Tensors t) {
         t[0].copy_(t[0].cumsum(0));
         return Tensors{};
       }},
      {"sort",
       {{30}},
       [](Tensors t) {
         t[0].copy_(std::get<0>(t[0].sort()));
         return Tensors{};
       }},
      {"convolution",
       {{1, 2, 9, 9}, {2, 2, 3, 3}},
       [](Tensors t) {
         t[0].copy_(at::conv2d(t[0], t[1], {}, 1, 1).relu());
         return Tensors{t[0].sum()};
       }},
  });
}

struct Recurrent : torch::nn::Module {
  torch::nn::LSTMCell cell{register_module("cell", torch::nn::LSTMCell(6, 8))};
  Tensor h{register_buffer("h", at::zeros({3, 8}))}, c{register_buffer("c", at::zeros({3, 8}))};
  Tensor previous{register_buffer("previous", at::zeros({3, 6}))};
  Tensor forward(const Tensor& x) {
    const auto [h1, c1] = cell(x, std::make_tuple(h, c));
    const auto before = previous.sum();
    h.copy_(h1), c.copy_(c1), previous.copy_(x);
    return h1 * 2 + before;
  }
};

TEST(InPlace, BuffersOfAModule) {
  for (const bool regional : {false, true})
    for (const bool verify : {true, false}) {
      const at::NoGradGuard no_grad;
      const auto mine = std::make_shared<Recurrent>(), eager = std::make_shared<Recurrent>();
      for (size_t i = 0; i < mine->parameters().size(); ++i)
        eager->parameters()[i].copy_(mine->parameters()[i]);
      const auto fast =
          compile(mine, {.fullgraph = true, .regional = regional, .verify = verify, .cache = false});
      for (int call = 0; call < 7; ++call) {
        const auto x = at::randn({3, 6});
        expect_same({fast(x)}, {eager->forward(x)}, "output");
        expect_same(mine->buffers(), eager->buffers(), "buffer");
      }
    }
}

/// Blocks with state, so that a region of each writes into it.
struct Block : torch::nn::Module {
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(8, 8))};
  Tensor state{register_buffer("state", at::zeros({4, 8}))};
  Tensor forward(const Tensor& x) {
    const auto sum = state.sum() + state.amax(1).sum();
    const auto y = linear(x).relu() + sum;
    state.copy_(y * 0.5);
    return y;
  }
};
struct Blocks : torch::nn::Module {
  torch::nn::ModuleList layers{register_module("layers", torch::nn::ModuleList())};
  Blocks() {
    for (int i = 0; i < 3; ++i) layers->push_back(std::make_shared<Block>());
  }
  Tensor forward(Tensor x) {
    for (const auto& layer : *layers) x = layer->as<Block>()->forward(x);
    return x;
  }
};

TEST(InPlace, RegionsReadBeforeTheyOverwrite) {
  for (const bool verify : {true, false}) {
    const at::NoGradGuard no_grad;
    const auto mine = std::make_shared<Blocks>(), eager = std::make_shared<Blocks>();
    for (size_t i = 0; i < mine->parameters().size(); ++i)
      eager->parameters()[i].copy_(mine->parameters()[i]);
    const auto fast = compile_regions(mine, {.fullgraph = true, .verify = verify, .cache = false});
    for (int call = 0; call < 7; ++call) {
      const auto x = at::randn({4, 8});
      expect_same({fast(x)}, {eager->forward(x)}, "output");
      expect_same(mine->buffers(), eager->buffers(), "buffer");
    }
  }
}

TEST(InPlace, ACallThatThrowsHasChangedNothing) {
  const at::NoGradGuard no_grad;
  const std::vector<Case> cases = {
      {"written, then a gather",
       {{20, 4}, {20, 4}},
       [](Tensors t) {
         t[0].add_(1);
         return Tensors{t[1].index_select(0, t[2]) * 2};
       }},
      {"in the same kernel",
       {{3, 4}, {20, 4}},
       [](Tensors t) {
         t[0].add_(t[1].index_select(0, t[2]));
         return Tensors{};
       }},
      {"embedding",
       {{3, 4}, {20, 4}},
       [](Tensors t) {
         t[0].mul_(2);
         return Tensors{at::embedding(t[1], t[2])};
       }},
      {"rows of two caches",
       {{20, 4}, {20, 4}},
       [](Tensors t) {
         t[0].index_copy_(0, t[2], at::ones({3, 4}));
         t[1].index_copy_(0, t[2] + 0, t[0].index_select(0, t[2]));
         return Tensors{t[1].sum()};
       }},
      {"rows added",
       {{20, 4}, {3, 4}},
       [](Tensors t) {
         t[0].index_add_(0, t[2], t[1]);
         return Tensors{};
       }},
  };
  for (const auto& each : cases)
    for (const bool verify : {true, false}) {
      SCOPED_TRACE(each.name);
      const auto fast = compile(each.function,
                                {.fullgraph = true, .verify = verify, .replay = Replay::off, .cache = false});
      for (int call = 0; call < 8; ++call) {
        SCOPED_TRACE("call " + std::to_string(call));
        Tensors mine;
        for (const auto& shape : each.shapes) mine.push_back(at::randn(shape));
        const bool bad = call % 3 == 2;
        mine.push_back(at::tensor({5, 2, bad ? 20 : 7}, at::kLong));
        auto eagers = copies(mine);
        if (bad) {
          EXPECT_ANY_THROW(fast(mine));
          expect_same(mine, eagers, "argument of a call that threw");
          continue;
        }
        expect_same(fast(mine), each.function(eagers), "output");
        expect_same(mine, eagers, "argument");
      }
    }
}

TEST(InPlace, AnArgumentWithGapsKeepsWhatLiesBetween) {
  const at::NoGradGuard no_grad;
  const Function f = [](Tensors t) {
    auto s = t[0].sum();
    t[0].mul_(2).add_(t[1]);
    return Tensors{s};
  };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  for (int call = 0; call < 6; ++call) {
    // Whole numbers: their sum is the same in any order.
    const auto base = at::randint(-9, 10, {10, 12}).to(at::kFloat), other = at::randn({10, 5});
    const auto eager = base.clone();
    const auto got = fast({base.narrow(1, 3, 5), other});
    const auto want = f({eager.narrow(1, 3, 5), other});
    expect_same({got[0], base}, {want[0], eager}, "all of the memory");
  }
}

// --- what stays in place, and what must not

std::vector<bool> written_in_place(const char* text, const std::vector<InPlace>& pairs, Tensors inputs) {
  const auto graph = ir::parse(text);
  const auto want = ref::compile(graph, {})->run(copies(inputs), false);
  const auto run = build(ir::parse(text), {}, {.cache = false}, {.in_place = pairs});
  const auto got = run->run(inputs, true);
  expect_same(got, want, "result");
  std::vector<bool> in_place;
  for (const auto& pair : pairs) in_place.push_back(got[pair.result].is_same(inputs[pair.input]));
  return in_place;
}

using Flags = std::vector<bool>;

TEST(InPlace, AnOptimizersStepIsWrittenIntoItsParameters) {
  EXPECT_EQ(written_in_place(R"(graph(%0 "p": f32[40], %1 "m": f32[40], %2 "g": f32[40]) {
  %3: f32[40] = aten::mul.Scalar(self=%1, other=0.9)
  %4: f32[40] = aten::add.Tensor(self=%3, other=%2, alpha=0.1)
  %5: f32[40] = aten::tanh(self=%4)
  %6: f32[40] = aten::sub.Tensor(self=%0, other=%5, alpha=0.01)
  return (%6, %4)
}
)",
                             {{0, 0}, {1, 1}}, {at::randn({40}), at::randn({40}), at::randn({40})}),
            (Flags{true, true}));
}

TEST(InPlace, CachesOfAllLayersAreWrittenByOneIndex) {
  // The second looks at the same index: it cannot fail when the first did not.
  EXPECT_EQ(written_in_place(
                R"(graph(%0 "k": f32[9, 4], %1 "v": f32[9, 4], %2 "i": i64[2], %3 "x": f32[2, 4]) {
  %4: f32[9, 4] = aten::index_copy(self=%0, dim=0, index=%2, source=%3)
  %5: f32[4, 9]{1, 4} = aten::t(self=%4)
  %6: f32[2, 9] = aten::mm(self=%3, mat2=%5)
  %7: f32[2, 4] = aten::exp(self=%3)
  %8: f32[9, 4] = aten::index_copy(self=%1, dim=0, index=%2, source=%7)
  %9: f32[2, 4] = aten::mm(self=%6, mat2=%8)
  return (%4, %8, %9)
}
)",
                {{0, 0}, {1, 1}},
                {at::randn({9, 4}), at::randn({9, 4}), at::tensor({3, 5}, at::kLong), at::randn({2, 4})}),
            (Flags{true, true}));
}

TEST(InPlace, NoneOfTwoThatFeedEachOtherBeforeTheOtherHasRead) {
  const auto in_place = written_in_place(R"(graph(%0 "a": f32[40], %1 "b": f32[40]) {
  %2: f32[40] = aten::exp(self=%1)
  %3: f32[40] = aten::tanh(self=%0)
  return (%2, %3)
}
)",
                                         {{0, 0}, {1, 1}}, {at::randn({40}), at::randn({40})});
  EXPECT_FALSE(in_place[0] && in_place[1]);
}

TEST(InPlace, NotWhereTheSameValueIsGivenBackBesides) {
  EXPECT_EQ(written_in_place(R"(graph(%0 "a": f32[40]) {
  %1: f32[40] = aten::exp(self=%0)
  return (%1, %1)
}
)",
                             {{0, 0}}, {at::randn({40})}),
            (Flags{false}));
}

TEST(InPlace, NotBeforeWhatCanFail) {
  const Tensors inputs = {at::randn({40}), at::randn({9}), at::tensor({3, 5}, at::kLong)};
  EXPECT_EQ(written_in_place(R"(graph(%0 "a": f32[40], %1 "t": f32[9], %2 "i": i64[2]) {
  %3: f32[40] = aten::exp(self=%0)
  %4: f32[40] = aten::cumsum(self=%3, dim=0, dtype=None)
  %5: f32[2] = aten::take(self=%4, index=%2)
  return (%3, %5)
}
)",
                             {{0, 0}}, inputs),
            (Flags{false}));
}

TEST(InPlace, ElementsThatShareMemoryAreNoPlaceToWrite) {
  using plan::is_injective;
  const auto type = [](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return ir::TensorType{ir::DType::f32, std::move(sizes), std::move(strides)};
  };
  EXPECT_TRUE(is_injective(type({3, 4}, {4, 1})));
  EXPECT_TRUE(is_injective(type({3, 4}, {1, 3})));
  EXPECT_TRUE(is_injective(type({3, 4}, {100, 7})));
  EXPECT_FALSE(is_injective(type({3, 4}, {0, 1})));
  EXPECT_FALSE(is_injective(type({3, 4}, {2, 1})));
}

}  // namespace
}  // namespace graft
