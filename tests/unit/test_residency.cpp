// Blocks whose weights come and go: in which order they are asked for.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>

#include <map>
#include <string>

#include "nn/checkpointing.h"
#include "support/block_path.h"
#include "train/use_order.h"

namespace graft {
namespace {

struct Scaled : torch::nn::Module {
  at::Tensor factor = register_parameter("factor", torch::full({3}, 2.0), /*requires_grad=*/false);
  at::Tensor forward(const at::Tensor& x) { return (x * factor).tanh(); }
};

/// Writes down who was asked for.
class Log : public Residency {
 public:
  explicit Log(const std::vector<std::shared_ptr<Scaled>>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) names_[blocks[i].get()] = std::to_string(i);
    set_current(this);
  }
  ~Log() override { set_current(nullptr); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool present(const void* key) const override { return !names_.contains(key); }
  void enter(Keys keys) override { text += "+" + names_.at(keys[0]) + " "; }
  void leave(Keys keys) override { text += "-" + names_.at(keys[0]) + " "; }
  Copy* copy(const void*, int, const std::function<std::unique_ptr<Copy>()>&) override { return nullptr; }

  std::string text;

 private:
  std::map<const void*, std::string> names_;
};

std::vector<std::shared_ptr<Scaled>> three_blocks() {
  return {std::make_shared<Scaled>(), std::make_shared<Scaled>(), std::make_shared<Scaled>()};
}

TEST(Residency, BlocksComeInTurnAndBackwardsForGradients) {
  const auto blocks = three_blocks();
  for (const bool recompute : {false, true}) {
    Log log(blocks);
    const auto x = torch::ones({3}).requires_grad_(true);
    const auto y = nn::through(blocks, x, recompute);
    EXPECT_EQ(log.text, "+0 -0 +1 -1 +2 -2 ");
    log.text.clear();
    y.sum().backward();
    EXPECT_EQ(log.text, "+2 -2 +1 -1 +0 -0 ");
    EXPECT_TRUE(x.grad().defined());
  }
}

TEST(Residency, NoGradientsNoWayBack) {
  const auto blocks = three_blocks();
  Log log(blocks);
  // Nothing before the second block wants a gradient: the first is not needed again.
  const auto x = torch::ones({3});
  blocks[1]->factor.set_requires_grad(true);
  const auto y = nn::through(blocks, x, /*recompute=*/false);
  log.text.clear();
  y.sum().backward();
  EXPECT_EQ(log.text, "+2 -2 +1 -1 ");
}

TEST(Residency, SameResultAsWithout) {
  const auto blocks = three_blocks();
  const auto run = [&] {
    const auto x = torch::linspace(-1, 1, 3).requires_grad_(true);
    const auto y = nn::through(blocks, x, /*recompute=*/false);
    return std::pair(y.detach(), torch::autograd::grad({y.sum()}, {x})[0]);
  };
  const auto want = run();
  const Log log(blocks);
  const auto got = run();
  EXPECT_TRUE(torch::equal(got.first, want.first));
  EXPECT_TRUE(torch::equal(got.second, want.second));
}

/// A decoder's first block is done when the encoder's gradients begin, though none goes to what it was given.
TEST(Residency, WhatEndsAGradientIsLeftWhenAnotherIsEntered) {
  const auto blocks = three_blocks();
  Log log(blocks);
  const auto source = torch::ones({3}).requires_grad_(true), target = torch::ones({3});
  const auto encoded = nn::through(std::vector{blocks[0]}, source, /*recompute=*/false);
  const auto first = nn::with_weights(*blocks[1], target,
                                      [&](const at::Tensor& x) { return blocks[1]->forward(x + encoded); });
  const auto y = nn::through(std::vector{blocks[2]}, first, /*recompute=*/false);
  log.text.clear();
  y.sum().backward();
  EXPECT_EQ(log.text, "+2 -2 +1 -1 +0 -0 ");
}

TEST(UseOrder, WhatCameTheLastTime) {
  train::UseOrder<std::string> order;
  const auto pass = [&](const std::string& letters) {
    std::string foreseen;
    for (const char letter : letters) {
      const auto next = order.used(std::string(1, letter));
      foreseen += next.empty() ? "." : next;
    }
    order.begin();
    return foreseen;
  };
  EXPECT_EQ(pass("eabcehhecbaab"), "............c");
  EXPECT_EQ(pass("eabcehhecbaab"),
            "abcehhecbaab.");  // which a comes after is told by more than one before it
  EXPECT_EQ(pass("eabx"), "abc.");
  EXPECT_EQ(pass("eabc"), "abxe");
  EXPECT_EQ(pass("eabc"), "abc.");  // nothing comes after it
}

TEST(BlockPath, StagesAreListsOfBlocks) {
  EXPECT_EQ(block_of("model.layers.3.mlp"), "model.layers.3");
  EXPECT_EQ(block_of("encoder.block.0.layer.1.DenseReluDense"), "encoder.block.0");
  EXPECT_EQ(block_of("resnet.encoder.stages.1.layers.3.layer.0.convolution"),
            "resnet.encoder.stages.1.layers.3");
  EXPECT_EQ(block_of("encoder.stages.1.norm"), "");
  EXPECT_EQ(block_of("lm_head"), "");
}

}  // namespace
}  // namespace graft
