// The loop of generation over a model made up for it: asking a step late whether all rows have ended changes
// nothing.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "generation/loop.h"

namespace graft::generation {
namespace {

constexpr int64_t vocabulary = 11;

/// The next token of a row is given by its last one and by the seed. Counts its steps.
class MadeUp : public Steps {
 public:
  explicit MadeUp(int64_t seed) : seed_(seed) {}
  int64_t steps = 0;

  at::Tensor start(const Prompt& prompt) override {
    return after(prompt.ids.select(1, prompt.length() - 1) + at::arange(prompt.batch()));
  }
  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override {
    ++steps;
    return after(tokens.select(1, 0) + positions.select(1, 0));
  }
  at::Tensor several(const at::Tensor&, const at::Tensor&) override {
    throw std::logic_error("not asked for");
  }
  void forget(int64_t) override { throw std::logic_error("not asked for"); }
  void reorder(const at::Tensor&) override { throw std::logic_error("not asked for"); }

 private:
  at::Tensor after(const at::Tensor& what) const {
    const auto tokens = (what * (2 * seed_ + 3) + seed_).remainder(vocabulary);
    return at::one_hot(tokens, vocabulary).to(at::kFloat);
  }
  int64_t seed_;
};

GenerateOutput generated(int64_t seed, int64_t rows, const GenerationConfig& config, bool looks_late,
                         int64_t& steps) {
  MadeUp model(seed);
  Prompt prompt{.ids = at::arange(3 * rows).view({rows, 3}).remainder(vocabulary),
                .positions = at::arange(3).expand({rows, 3}),
                .new_tokens = *config.max_new_tokens};
  auto made = run(model, prompt, config, {}, /*with_logprobs=*/true, looks_late);
  steps = model.steps;
  return made;
}

TEST(GenerationLoop, AskingLateChangesNothing) {
  int64_t early_ends = 0;
  for (int64_t seed = 0; seed < 60; ++seed)
    for (const int64_t rows : {1, 3})
      for (const int64_t most : {1, 2, 5, 12}) {
        GenerationConfig config;
        config.max_new_tokens = most;
        config.eos_token_id = {seed % vocabulary, (seed + 4) % vocabulary};
        config.pad_token_id = 0;
        int64_t at_once = 0, late = 0;
        const auto want = generated(seed, rows, config, false, at_once);
        const auto got = generated(seed, rows, config, true, late);
        EXPECT_TRUE(at::equal(got.sequences, want.sequences)) << seed << " " << rows << " " << most;
        EXPECT_TRUE(at::equal(got.logprobs, want.logprobs)) << seed << " " << rows << " " << most;
        const bool ends_early = want.sequences.size(1) < 3 + most;
        early_ends += ends_early;
        EXPECT_EQ(late, at_once + (ends_early ? 1 : 0));
      }
  EXPECT_GT(early_ends, 100);
}

}  // namespace
}  // namespace graft::generation
