// Assisted decoding: guesses change how many calls it takes, and never a token.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "generation/candidates.h"
#include "graft/error.h"
#include "unit/tiny_decoders.h"

namespace graft {
namespace {
using generation::PromptLookup;
using testing_tools::one_row;
using testing_tools::tiny_decoder;
using testing_tools::tiny_prompt;
using testing_tools::tokens_in;
using Ids = std::vector<int64_t>;

TEST(PromptLookup, GivesWhatFollowedTheLastTokens) {
  EXPECT_EQ(PromptLookup(3, 2).after({5, 6, 7, 8, 9, 5, 6}, 10).tokens, (Ids{7, 8, 9}));
  EXPECT_EQ(PromptLookup(3, 2).after({5, 6, 7, 8, 9, 5, 6}, 1).tokens, (Ids{7}));
  EXPECT_EQ(PromptLookup(9, 2).after({5, 6, 7, 5, 6}, 10).tokens,
            (Ids{7, 5, 6}));  // as far as the sequence goes
}

TEST(PromptLookup, LongerRunsGoFirstAndThenTheFirstPlace) {
  EXPECT_EQ(PromptLookup(1, 2).after({6, 1, 5, 6, 2, 5, 6}, 10).tokens, (Ids{2}));
  EXPECT_EQ(PromptLookup(1, 1).after({6, 1, 5, 6, 2, 5, 6}, 10).tokens, (Ids{1}));
  EXPECT_EQ(PromptLookup(1, 3).after({6, 1, 9, 6, 2, 5, 6}, 10).tokens,
            (Ids{1}));  // no run of 3 or 2: one token
}

TEST(PromptLookup, GivesNothingWhereNothingComesAgain) {
  EXPECT_EQ(PromptLookup(3, 2).after({1, 2, 3}, 10).tokens, Ids{});
  EXPECT_EQ(PromptLookup(3, 2).after({1}, 10).tokens, Ids{});
  EXPECT_EQ(PromptLookup(3, 2).after({4, 4}, 0).tokens, Ids{});
  EXPECT_EQ(PromptLookup(3, 2).after({4, 4}, 5).tokens, Ids{4});
}

struct Told {
  int64_t guessed = 0, right = 0;
  Ids tokens;
  GenerateCall call(std::shared_ptr<PreTrainedModel> draft = {}) {
    return {.on_tokens =
                [this](const Ids& new_tokens) {
                  tokens.push_back(new_tokens.at(0));
                  return true;
                },
            .assistant_model = std::move(draft),
            .on_candidates =
                [this](int64_t some, int64_t kept) {
                  guessed += some;
                  right += kept;
                }};
  }
};

class Assisted : public ::testing::TestWithParam<const char*> {};

TEST_P(Assisted, LookingUpChangesNoToken) {
  const auto model = tiny_decoder(GetParam());
  Decoder fast(model, {.fullgraph = true});
  int64_t right = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto prompt = tiny_prompt(9, seed);
    GenerationConfig config{.max_new_tokens = 30};
    const auto want = generate(*model, {.input_ids = one_row(prompt)}, config);
    config.prompt_lookup_num_tokens = 4;
    Told eager, compiled;
    EXPECT_TRUE(at::equal(generate(*model, {.input_ids = one_row(prompt)}, config, eager.call()), want));
    EXPECT_TRUE(at::equal(fast.generate({.input_ids = one_row(prompt)}, config, compiled.call()), want));
    EXPECT_EQ(eager.tokens, tokens_in(want.slice(1, 9)));
    EXPECT_EQ(eager.right, compiled.right);
    EXPECT_LE(eager.right, eager.guessed);
    right += eager.right;
  }
  EXPECT_GT(right, 10) << "hardly a guess was right: nothing was tested";
}

TEST_P(Assisted, ADraftModelChangesNoToken) {
  const auto model = tiny_decoder(GetParam());
  const std::shared_ptr<PreTrainedModel> drafts[] = {model, tiny_decoder("gpt2", 5),
                                                     tiny_decoder("llama", 3)};
  GenerationConfig config{
      .max_new_tokens = 24, .num_assistant_tokens = 5, .assistant_confidence_threshold = 0};
  const auto prompt = tiny_prompt(9, 1);
  const auto want = generate(*model, {.input_ids = one_row(prompt)}, config);
  Decoder fast(model, {.fullgraph = true});
  for (const auto& draft : drafts) {
    Told eager, compiled;
    EXPECT_TRUE(at::equal(generate(*model, {.input_ids = one_row(prompt)}, config, eager.call(draft)), want));
    EXPECT_TRUE(at::equal(fast.generate({.input_ids = one_row(prompt)}, config, compiled.call(draft)), want));
    EXPECT_GT(eager.guessed, 0);
    // A model that goes ahead of itself is always right.
    if (draft == model) EXPECT_EQ(eager.right, eager.guessed);
    if (draft == model) EXPECT_EQ(compiled.right, compiled.guessed);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Assisted, ::testing::Values("llama", "gpt2", "bloom"));

TEST(Assisted, ASeedDrawsTheSameTokens) {
  const auto model = tiny_decoder("llama");
  const auto prompt = one_row(tiny_prompt(10, 2));
  GenerationConfig config{.max_new_tokens = 25, .do_sample = true, .temperature = 0.3, .seed = 17};
  const auto want = generate(*model, {.input_ids = prompt}, config);
  Told drafted;
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config, drafted.call(model)), want));
  EXPECT_GT(drafted.right, 0);
  config.prompt_lookup_num_tokens = 3;
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config), want));
}

TEST(Assisted, RulesForScoresCountForGuesses) {
  const auto model = tiny_decoder("gpt2");
  const auto prompt = one_row(tiny_prompt(8, 4));
  GenerationConfig config{
      .max_new_tokens = 20, .repetition_penalty = 1.4, .no_repeat_ngram_size = 3, .suppress_tokens = {7, 8}};
  const auto want = generate(*model, {.input_ids = prompt}, config);
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config, {.assistant_model = model}), want));
  config.prompt_lookup_num_tokens = 5;
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config), want));
}

TEST(Assisted, EndsWhereItEndsWithout) {
  const auto model = tiny_decoder("llama");
  const auto prompt = one_row(tiny_prompt(9, 0));
  GenerationConfig config{.max_new_tokens = 30};
  const auto free = tokens_in(generate(*model, {.input_ids = prompt}, config).slice(1, 9));
  for (const size_t at : {0, 3, 11, 20}) {
    config.eos_token_id = {free[at]};
    config.prompt_lookup_num_tokens.reset();
    const auto want = generate(*model, {.input_ids = prompt}, config);
    EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config, {.assistant_model = model}), want));
    config.prompt_lookup_num_tokens = 6;
    EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config), want));
  }
}

TEST(Assisted, ACallbackStopsItAmongGuesses) {
  const auto model = tiny_decoder("llama");
  const auto prompt = one_row(tiny_prompt(9, 0));
  const GenerationConfig config{.max_new_tokens = 30};
  const auto want = generate(*model, {.input_ids = prompt}, config);
  for (size_t stop = 1; stop < 12; ++stop) {
    size_t told = 0;
    const auto got =
        generate(*model, {.input_ids = prompt}, config,
                 {.on_tokens = [&](const Ids&) { return ++told < stop; }, .assistant_model = model});
    EXPECT_TRUE(at::equal(got, want.slice(1, 0, 9 + static_cast<int64_t>(stop))));
  }
}

TEST(Assisted, PaddingOnTheLeftStaysPadding) {
  const auto model = tiny_decoder("bloom");
  ModelInputs prompt{.input_ids = one_row(tiny_prompt(9, 5)), .attention_mask = at::ones({1, 9}, at::kLong)};
  prompt.attention_mask.slice(1, 0, 3).zero_();
  GenerationConfig config{.max_new_tokens = 20};
  const auto want = generate(*model, prompt, config);
  config.prompt_lookup_num_tokens = 4;
  EXPECT_TRUE(at::equal(generate(*model, prompt, config), want));
  EXPECT_TRUE(at::equal(Decoder(model).generate(prompt, config), want));
}

/// GPT-2's table of positions is full with the last token: neither guesses nor their filling go past it.
TEST(Assisted, GoesToTheLastPosition) {
  const auto model = tiny_decoder("gpt2");
  const auto prompt = one_row(tiny_prompt(9, 6));
  GenerationConfig config{.max_new_tokens = 56};
  const auto want = generate(*model, {.input_ids = prompt}, config);
  Decoder fast(model);
  EXPECT_TRUE(at::equal(fast.generate({.input_ids = prompt}, config, {.assistant_model = model}), want));
  config.prompt_lookup_num_tokens = 10;
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config), want));
  EXPECT_TRUE(at::equal(fast.generate({.input_ids = prompt}, config), want));
}

/// A draft model that has fewer positions than the text needs stops guessing there.
TEST(Assisted, ADraftModelMayHaveFewerPositions) {
  const auto model = tiny_decoder("llama");
  const auto shorter = tiny_decoder("gpt2", 5, R"("n_positions": 16)");
  for (const int64_t length : {9, 20}) {
    const auto prompt = one_row(tiny_prompt(length, 6));
    const GenerationConfig config{.max_new_tokens = 20, .assistant_confidence_threshold = 0};
    Told told;
    EXPECT_TRUE(at::equal(generate(*model, {.input_ids = prompt}, config, told.call(shorter)),
                          generate(*model, {.input_ids = prompt}, config)));
    EXPECT_EQ(told.guessed > 0, length == 9);
  }
}

TEST(Assisted, ThreeProgramsServeAllPrompts) {
  const auto model = tiny_decoder("llama");
  reset();
  Decoder fast(model, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 20, .prompt_lookup_num_tokens = 4};
  for (uint64_t seed = 0; seed < 4; ++seed)
    fast.generate({.input_ids = one_row(tiny_prompt(11, seed))}, config);
  EXPECT_EQ(counters().graphs, 3);  // prompts from the second on, a step with guesses and one without
  EXPECT_EQ(counters().recompiles, 0);
}

using Pairs = std::map<std::pair<int64_t, int64_t>, double>;

/// How often each pair of last tokens came in the rows.
void count(const at::Tensor& sequences, Pairs& counts) {
  const auto last = sequences.slice(1, sequences.size(1) - 2).contiguous();
  const auto pairs = last.accessor<int64_t, 2>();
  for (int64_t row = 0; row < last.size(0); ++row) counts[{pairs[row][0], pairs[row][1]}] += 1;
}

/// The chi-square statistic of two samples of one size, over pairs that came often enough, and how many these
/// are; the others are one class.
std::pair<double, int> chi_square(const Pairs& a, const Pairs& b) {
  auto all = a;
  for (const auto& [key, count] : b) all[key] += count;
  const auto of = [](const auto& counts, const auto& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0.0 : found->second;
  };
  double sum = 0, rare_a = 0, rare_b = 0;
  int classes = 0;
  const auto add = [&](double x, double y) {
    sum += (x - y) * (x - y) / (x + y);
    ++classes;
  };
  for (const auto& [key, count] : all) {
    if (count >= 20)
      add(of(a, key), of(b, key));
    else
      rare_a += of(a, key), rare_b += of(b, key);
  }
  if (rare_a + rare_b > 0) add(rare_a, rare_b);
  return {sum, classes};
}

/// Speculative sampling: a draft that says quite other things than the model changes no probability. The
/// seeds are fixed, so that this comes out the same each time; a wrong rule of acceptance is far off.
TEST(Assisted, SpeculativeSamplingKeepsTheProbabilities) {
  const auto model = tiny_decoder("llama"), draft = tiny_decoder("llama", 8);
  const auto prompt = one_row(tiny_prompt(9, 1));
  GenerationConfig config{.max_new_tokens = 3,
                          .do_sample = true,
                          .temperature = 0.5,
                          .top_k = 4,
                          .num_assistant_tokens = 4,
                          .assistant_confidence_threshold = 0};
  constexpr int64_t runs = 1500;
  const auto rows = prompt.expand({runs, prompt.size(1)});
  Pairs plain, of_draft, speculative;
  config.seed = 1;
  count(generate(*model, {.input_ids = rows}, config), plain);
  count(generate(*draft, {.input_ids = rows}, config), of_draft);
  config.speculative_sampling = true;
  Told told;
  for (int64_t run = 0; run < runs; ++run) {
    config.seed = 100 + run;
    count(generate(*model, {.input_ids = prompt}, config, told.call(draft)), speculative);
  }
  // Both ways of the rule were gone.
  EXPECT_GT(told.right, runs / 20);
  EXPECT_LT(told.right, told.guessed * 9 / 10);
  // The mean of the statistic is its degrees of freedom, its variance twice that: 5 deviations.
  const auto limit = [](int classes) { return classes + 5 * std::sqrt(2.0 * classes); };
  const auto [found, classes] = chi_square(plain, speculative);
  EXPECT_GE(classes, 8);
  EXPECT_LT(found, limit(classes));
  // The draft's own draws are far off: the statistic tells.
  const auto [apart, some] = chi_square(plain, of_draft);
  EXPECT_GT(apart, 3 * limit(some));
}

TEST(Assisted, SpeculativeSamplingOfTheModelItselfKeepsAllGuesses) {
  const auto model = tiny_decoder("gpt2");
  const auto prompt = one_row(tiny_prompt(9, 1));
  const GenerationConfig config{.max_new_tokens = 30,
                                .do_sample = true,
                                .seed = 4,
                                .num_assistant_tokens = 6,
                                .assistant_confidence_threshold = 0,
                                .speculative_sampling = true};
  Told eager, compiled;
  const auto got = generate(*model, {.input_ids = prompt}, config, eager.call(model));
  EXPECT_GT(eager.guessed, 20);
  EXPECT_EQ(eager.right, eager.guessed);
  EXPECT_TRUE(at::equal(Decoder(model).generate({.input_ids = prompt}, config, compiled.call(model)), got));
  auto wrong = config;
  wrong.do_sample = false;
  EXPECT_THROW(generate(*model, {.input_ids = prompt}, wrong, eager.call(model)), UsageError);
  EXPECT_THROW(generate(*model, {.input_ids = prompt}, config), UsageError);
}

TEST(Assisted, WhatCannotBeIsAnError) {
  const auto model = tiny_decoder("llama");
  const auto two = at::full({2, 4}, 5, at::kLong), one = two.slice(0, 0, 1);
  const GenerationConfig lookup{.max_new_tokens = 3, .prompt_lookup_num_tokens = 2};
  EXPECT_THROW(generate(*model, {.input_ids = two}, lookup), UsageError);
  EXPECT_THROW(generate(*model, {.input_ids = two}, {.max_new_tokens = 3}, {.assistant_model = model}),
               UsageError);
  EXPECT_THROW(generate(*model, {.input_ids = one}, lookup, {.assistant_model = model}), UsageError);
  EXPECT_THROW(generate(*model, {.input_ids = one}, {.prompt_lookup_num_tokens = 0}), UsageError);
  EXPECT_THROW(generate(*model, {.input_ids = one}, {.num_assistant_tokens = 0}), UsageError);
  const auto other = tiny_decoder("llama", 3, R"("vocab_size": 38)");
  EXPECT_THROW(generate(*model, {.input_ids = one}, {.max_new_tokens = 3}, {.assistant_model = other}),
               UsageError);
  // Past the trained length these rotations follow the longest position of a call.
  const auto dynamic = tiny_decoder(
      "llama", 3, R"("rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})");
  EXPECT_NO_THROW(generate(*dynamic, {.input_ids = one}, lookup));
  EXPECT_THROW(generate(*dynamic, {.input_ids = one}, {.max_new_tokens = 61, .prompt_lookup_num_tokens = 2}),
               UsageError);
}

}  // namespace
}  // namespace graft
