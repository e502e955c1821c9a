// The compiled decoder over prompts of many lengths: eager's tokens, and few programs.
#include <gtest/gtest.h>

#include "tiny_decoders.h"

namespace graft {
namespace {

using namespace testing_tools;

class CompiledPrompts : public ::testing::TestWithParam<const char*> {};

TEST_P(CompiledPrompts, ShareProgramsByLength) {
  const auto model = tiny_decoder(GetParam());
  Decoder fast(model, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 6};
  const auto run = [&](int64_t length, uint64_t seed) {
    const auto prompt = one_row(tiny_prompt(length, seed));
    EXPECT_TRUE(at::equal(fast.generate({.input_ids = prompt}, config),
                          generate(*model, {.input_ids = prompt}, config)))
        << length << " tokens, seed " << seed;
  };
  reset();
  run(40, 0);  // of its length the first, and it makes the cache
  for (const int64_t length : {9, 30}) run(length, 1);
  EXPECT_EQ(counters().graphs, 1) << "a prompt was compiled that came once";
  for (const int64_t length : {12, 20}) run(length, 2);
  EXPECT_EQ(counters().graphs, 3);
  for (const int64_t length : {1, 5, 16, 11, 32, 17, 25, 48}) run(length, 3);
  EXPECT_EQ(counters().graphs, 4);  // 48 is as long as 40 is filled up to
  for (const int64_t length : {2, 18, 33}) run(length, 4);
  EXPECT_EQ(counters().graphs, 4);
  EXPECT_EQ(counters().recompiles, 0);
  EXPECT_EQ(counters().mismatches, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, CompiledPrompts, ::testing::Values("llama", "gpt2", "bloom", "opt"));

TEST(CompiledPrompts, OfSeveralRowsWithPadding) {
  const auto model = tiny_decoder("llama");
  Decoder fast(model, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 6, .pad_token_id = 0};
  for (uint64_t seed = 0; seed < 4; ++seed) {
    auto ids = at::cat({one_row(tiny_prompt(13, seed)), one_row(tiny_prompt(13, seed + 7))});
    auto mask = at::ones_like(ids);
    ids[1].slice(0, 0, 5).fill_(0);
    mask[1].slice(0, 0, 5).fill_(0);
    const ModelInputs prompt{.input_ids = ids, .attention_mask = mask};
    EXPECT_TRUE(at::equal(fast.generate(prompt, config), generate(*model, prompt, config))) << seed;
  }
}

// Filled up, a prompt would be past the model's last position.
TEST(CompiledPrompts, AtTheEndOfThePositions) {
  const auto model = tiny_decoder("gpt2", 3, R"("n_positions": 27)");
  Decoder fast(model, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 4};
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto prompt = one_row(tiny_prompt(24, seed));
    EXPECT_TRUE(at::equal(fast.generate({.input_ids = prompt}, config),
                          generate(*model, {.input_ids = prompt}, config)))
        << seed;
  }
}

}  // namespace
}  // namespace graft
