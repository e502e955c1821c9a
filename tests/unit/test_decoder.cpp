// The compiled decoder over prompts of many lengths: eager's tokens, and few programs.
#include <gtest/gtest.h>

#include "graft/error.h"
#include "tiny_decoders.h"
#include "unit/adapter_scene.h"

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

// Lily's router is a mean over the tokens of a call: from the second prompt on, which was filled up, other
// tokens came.
TEST(CompiledPrompts, AreNotFilledUpForWhoLooksAtAllTokens) {
  const auto peft = tiny_lily();
  const auto prompt = one_row(tiny_prompt(5, 1));
  {
    const at::NoGradGuard no_grad;
    const auto longer = at::cat({prompt, at::zeros({1, 11}, prompt.options())}, 1);
    ASSERT_FALSE(at::allclose(peft->forward({.input_ids = longer}).logits.slice(1, 0, 5),
                              peft->forward({.input_ids = prompt}).logits))
        << "nothing would be seen of it";
  }
  Decoder fast(peft, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 8};
  for (const int64_t length : {5, 5, 7, 5, 20}) {
    const ModelInputs inputs{.input_ids = one_row(tiny_prompt(length, 1))};
    for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"lily"}, {"lora"}})
      EXPECT_TRUE(at::equal(fast.generate(inputs, config, {.adapter_names = names}),
                            generate(*peft, inputs, config, {.adapter_names = names})))
          << length << " tokens, " << (names.empty() ? "active" : names[0]);
  }
  GenerationConfig guessing = config;
  guessing.prompt_lookup_num_tokens = 4;
  EXPECT_THROW(fast.generate({.input_ids = prompt}, guessing), UsageError);
  EXPECT_THROW(generate(*peft, {.input_ids = prompt}, guessing), UsageError);
  EXPECT_NO_THROW(fast.generate({.input_ids = prompt}, guessing, {.adapter_names = {"lora"}}));
}

// What Decoder and Session build on, for every other method: a token is the same whatever follows it.
TEST(AdapterLaws, WhatFollowsATokenChangesNothing) {
  check_law(60, scenes(1, /*on_layers=*/true), [](const Scene& scene) -> std::string {
    constexpr int bert = 3;
    if (scene.model == bert) return "";
    const auto peft = peft_of(scene, /*noise=*/0.5);
    const auto ids = inputs_of(scene).input_ids;
    const int64_t part = ids.size(1) - 2;
    return not_near(result(*peft, {.input_ids = ids}).slice(1, 0, part),
                    result(*peft, {.input_ids = ids.slice(1, 0, part)}));
  });
}

TEST(DecoderUse, AdapterNamesOfDisabledAdaptersAreTheBase) {
  const auto peft = tiny_lily();
  Decoder fast(peft, {.fullgraph = true});
  const GenerationConfig config{.max_new_tokens = 6};
  const ModelInputs prompt{.input_ids = one_row(tiny_prompt(6, 1))};
  const auto base = generate(*tiny_decoder("llama"), prompt, config);
  for (const auto* name : {"lora", "lily"}) {
    const GenerateCall call{.adapter_names = {name}};
    EXPECT_FALSE(at::equal(fast.generate(prompt, config, call), base));
    const auto off = peft->disable_adapter();
    for (int again = 0; again < 3; ++again)
      EXPECT_TRUE(at::equal(fast.generate(prompt, config, call), base)) << name;
    EXPECT_TRUE(at::equal(generate(*peft, prompt, config, call), base)) << name;
  }
}

// The cache kept its dtype, and every later call failed in index_copy_.
TEST(DecoderUse, FollowsAModelThatIsCast) {
  for (const auto* type : {"llama", "t5"}) {
    const auto model = std::string(type) == "llama"
                           ? tiny_decoder(type)
                           : AutoModelForAny::from_config(Config::from_json(
                                 R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"],
          "vocab_size": 37, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2,
          "is_encoder_decoder": true, "decoder_start_token_id": 0})"));
    model->eval();
    Decoder fast(model, {.fullgraph = true});
    const GenerationConfig config{.max_new_tokens = 5};
    const ModelInputs prompt{.input_ids = one_row(tiny_prompt(9, 2))};
    for (const auto dtype : {at::kFloat, at::kDouble, at::kFloat}) {
      model->to(dtype);
      for (int again = 0; again < 3; ++again)
        EXPECT_TRUE(at::equal(fast.generate(prompt, config), generate(*model, prompt, config)))
            << type << " " << dtype;
    }
  }
}

TEST(DecoderUse, WrongUseIsAnError) {
  EXPECT_THROW(Decoder(std::shared_ptr<PreTrainedModel>()), UsageError);
  EXPECT_THROW(Decoder(std::shared_ptr<PeftModel>()), UsageError);
  const auto model = tiny_decoder("llama");
  const ModelInputs prompt{.input_ids = one_row(tiny_prompt(4, 1))};
  const GenerationConfig config{.max_new_tokens = 3};
  Decoder one(model, {.backend = Backend::eager});
  // Its cache would be written over by the call inside.
  EXPECT_THROW(one.generate(prompt, config,
                            {.on_tokens =
                                 [&](const auto&) {
                                   one.generate(prompt, config);
                                   return true;
                                 }}),
               UsageError);
  Decoder other(std::move(one));
  EXPECT_TRUE(at::equal(other.generate(prompt, config), generate(*model, prompt, config)));
  EXPECT_THROW(one.generate(prompt, config), UsageError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(one.generate_with_scores(prompt, config), UsageError);
}

// "got null" stood in the message.
TEST(DecoderUse, SettingsThatAreNoNumbersAreNamed) {
  const auto model = tiny_decoder("llama");
  const ModelInputs prompt{.input_ids = one_row({4, 5})};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                   infinite = std::numeric_limits<double>::infinity();
  const auto said = [&](const GenerationConfig& config) -> std::string {
    try {
      generate(*model, prompt, config);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(said({.do_sample = true, .temperature = nan}),
            "[generate] temperature must be finite and above 0, got nan");
  EXPECT_EQ(said({.do_sample = true, .top_p = infinite}),
            "[generate] top_p must be finite and between 0 and 1, got inf");
  EXPECT_EQ(said({.num_beams = 2, .length_penalty = -infinite}),
            "[generate] length_penalty must be a finite number, got -inf");
  EXPECT_NE(said({.sequence_bias = {{{3}, nan}}}).find("sequence_bias is nan"), std::string::npos);
  EXPECT_NE(said({.eos_token_id = {3}, .exponential_decay_length_penalty = LengthDecay{1, nan}})
                .find("exponential_decay_length_penalty is nan"),
            std::string::npos);
}

}  // namespace
}  // namespace graft
