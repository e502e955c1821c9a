// A session gives generate()'s tokens, and reads what is new.
#include <gtest/gtest.h>

#include "graft/error.h"
#include "tiny_decoders.h"

namespace graft {
namespace {

using namespace testing_tools;
using Ids = std::vector<int64_t>;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::shared_ptr<PeftModel> with_adapters(const std::shared_ptr<PreTrainedModel>& model) {
  auto peft = std::make_shared<PeftModel>(model);
  for (const auto* name : {"a", "b"}) {
    peft->add_adapter(
        name, AdapterConfig::from_json(R"({"peft_type": "LORA", "r": 3, "target_modules": "all-linear"})"));
    const at::NoGradGuard no_grad;
    for (const auto& [key, tensor] : peft->state_dict(name)) tensor.add_(at::randn_like(tensor) * 0.3);
  }
  peft->eval();
  return peft;
}

class Sessions : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  std::optional<CompileOptions> how() const {
    return std::get<1>(GetParam()) ? std::optional(CompileOptions{.fullgraph = true}) : std::nullopt;
  }
};

TEST_P(Sessions, ReadWhatIsNew) {
  const auto model = tiny_decoder(std::get<0>(GetParam()));
  Session session(model, how());
  const GenerationConfig config{.max_new_tokens = 5};
  Ids text;
  for (uint64_t turn = 0; turn < 5; ++turn) {
    const auto before = static_cast<int64_t>(text.size());
    text = joined(text, tiny_prompt(4 + static_cast<int64_t>(turn), turn));
    const auto got = session.generate({.input_ids = one_row(text)}, config);
    EXPECT_TRUE(at::equal(got, generate(*model, {.input_ids = one_row(text)}, config))) << turn;
    // The last token of an answer has not been run.
    EXPECT_EQ(session.tokens_read(), static_cast<int64_t>(text.size()) - std::max<int64_t>(0, before - 1));
    text = tokens_in(got);
  }
  // Of another beginning nothing is of use, of the same one what is the same.
  text[3] = (text[3] + 1) % kTinyVocabulary;
  const auto want = generate(*model, {.input_ids = one_row(text)}, config);
  EXPECT_TRUE(at::equal(session.generate({.input_ids = one_row(text)}, config), want));
  EXPECT_EQ(session.tokens_read(), static_cast<int64_t>(text.size()) - 3);
  EXPECT_TRUE(at::equal(session.generate({.input_ids = one_row(text)}, config), want));
  EXPECT_EQ(session.tokens_read(), 1);
  session.forget();
  EXPECT_TRUE(at::equal(session.generate({.input_ids = one_row(text)}, config), want));
  EXPECT_EQ(session.tokens_read(), static_cast<int64_t>(text.size()));
}

TEST_P(Sessions, KeepWhatEachChoiceOfAdaptersRead) {
  const auto peft = with_adapters(tiny_decoder(std::get<0>(GetParam())));
  Session session(peft, how());
  const GenerationConfig config{.max_new_tokens = 4};
  Ids text = tiny_prompt(6, 1);
  const auto turn = [&](int64_t read) {
    const auto got = session.generate({.input_ids = one_row(text)}, config);
    EXPECT_TRUE(at::equal(got, generate(*peft, {.input_ids = one_row(text)}, config)));
    EXPECT_EQ(session.tokens_read(), read);
    text = tokens_in(got);
  };
  turn(6);  // 6 tokens and 4 new ones: 9 are held by "a"
  turn(1);
  peft->set_adapter("b");
  turn(14);
  peft->disable_adapters();
  turn(18);
  peft->enable_adapters();
  turn(22 - 17);
  peft->set_adapter("a");
  turn(26 - 13);
  peft->set_adapter(std::vector<std::string>{"a", "b"});
  turn(30);
}

TEST_P(Sessions, GoOnAfterAnAnswerThatWasStopped) {
  const auto model = tiny_decoder(std::get<0>(GetParam()));
  Session session(model, how());
  GenerationConfig config{.max_new_tokens = 20};
  const Ids prompt = tiny_prompt(7, 3);
  int64_t told = 0;
  const auto part = session.generate({.input_ids = one_row(prompt)}, config,
                                     {.on_tokens = [&](const Ids&) { return ++told < 6; }});
  EXPECT_EQ(part.size(1), 13);
  EXPECT_TRUE(at::equal(session.generate({.input_ids = part}, config),
                        generate(*model, {.input_ids = part}, config)));
  EXPECT_EQ(session.tokens_read(), 1);
  // One that throws leaves nothing that is half read.
  EXPECT_THROW(session.generate({.input_ids = part}, config, {.on_tokens = [](const Ids&) -> bool {
                                  throw std::runtime_error("enough");
                                }}),
               std::runtime_error);
  EXPECT_TRUE(at::equal(session.generate({.input_ids = part}, config),
                        generate(*model, {.input_ids = part}, config)));
}

TEST_P(Sessions, TakeGuesses) {
  const auto model = tiny_decoder(std::get<0>(GetParam()));
  Session session(model, how());
  GenerationConfig config{.max_new_tokens = 9};
  Ids text = tiny_prompt(9, 5);
  for (int turn = 0; turn < 3; ++turn) {
    config.prompt_lookup_num_tokens.reset();
    const auto want = generate(*model, {.input_ids = one_row(text)}, config);
    config.prompt_lookup_num_tokens = 4;
    EXPECT_TRUE(at::equal(session.generate({.input_ids = one_row(text)}, config), want));
    text = joined(tokens_in(want), {5, 6});
  }
}

// Those of the base and of adapters; written by any way there is.
TEST_P(Sessions, ReadAgainWithOtherWeights) {
  const auto peft = with_adapters(tiny_decoder(std::get<0>(GetParam())));
  Session session(peft, how());
  const GenerationConfig config{.max_new_tokens = 4};
  Ids text = tiny_prompt(6, 1);
  const auto turn = [&](const char* change) {
    SCOPED_TRACE(change);
    const auto got = session.generate({.input_ids = one_row(text)}, config);
    EXPECT_TRUE(at::equal(got, generate(*peft, {.input_ids = one_row(text)}, config)));
    EXPECT_EQ(session.tokens_read(), static_cast<int64_t>(text.size()));
    text = tokens_in(got);
  };
  const auto write = [](at::Tensor to, bool past_version) {
    const at::NoGradGuard no_grad;
    const auto more = at::randn(to.sizes()) * 0.3;
    past_version ? to.data().add_(more) : to.add_(more);
  };
  turn("the first");
  write(peft->state_dict("a")[0].second, false);
  turn("an adapter's tensor");
  write(peft->base_model()->unique_parameters()[0].second, false);
  turn("a base tensor");
  write(peft->base_model()->unique_parameters()[1].second, true);
  turn("a base tensor past its version");
  peft->merge_adapter();
  turn("merged");
  EXPECT_TRUE(at::equal(session.generate({.input_ids = one_row(text)}, config),
                        generate(*peft, {.input_ids = one_row(text)}, config)));
  EXPECT_EQ(session.tokens_read(), 1);  // nothing has changed
}

INSTANTIATE_TEST_SUITE_P(Models, Sessions,
                         ::testing::Combine(::testing::Values("llama", "gpt2", "bloom"), ::testing::Bool()));

TEST(Session, ReadAgainForAnotherTask) {
  const auto peft = std::make_shared<PeftModel>(tiny_decoder("llama"));
  peft->add_adapter("a", AdapterConfig::from_json(
                             R"({"peft_type": "POLY", "r": 4, "n_tasks": 3, "target_modules": ["q_proj"]})"));
  {
    const at::NoGradGuard no_grad;
    for (const auto& [key, tensor] : peft->state_dict("a")) tensor.add_(at::randn_like(tensor));
  }
  peft->eval();
  Session session(peft);
  const GenerationConfig config{.max_new_tokens = 6};
  Ids text = tiny_prompt(8, 2);
  for (const int64_t task : {0, 2, 1, 1}) {
    const ModelInputs prompt{.input_ids = one_row(text), .task_ids = at::tensor({task})};
    const auto got = session.generate(prompt, config);
    EXPECT_TRUE(at::equal(got, generate(*peft, prompt, config))) << task;
    text = tokens_in(got);
  }
}

// Lily's router is a mean over the tokens of a call: with a part of them read before, other tokens came.
TEST(Session, ReadsAllAgainForWhoLooksAtAllTokens) {
  const auto peft = tiny_lily();
  for (const bool compiled : {false, true}) {
    Session session(peft, compiled ? std::optional(CompileOptions{.fullgraph = true}) : std::nullopt);
    const GenerationConfig config{.max_new_tokens = 5};
    Ids text = tiny_prompt(6, 1);
    for (int turn = 0; turn < 4; ++turn) {
      const auto got = session.generate({.input_ids = one_row(text)}, config);
      EXPECT_TRUE(at::equal(got, generate(*peft, {.input_ids = one_row(text)}, config))) << turn;
      EXPECT_EQ(session.tokens_read(), static_cast<int64_t>(text.size()));
      text = tokens_in(got);
    }
    // Another adapter goes on from what it has read.
    for (const int64_t read : {static_cast<int64_t>(text.size()), int64_t{1}}) {
      session.generate({.input_ids = one_row(text)}, config, {.adapter_names = {"lora"}});
      EXPECT_EQ(session.tokens_read(), read);
    }
  }
}

// PEFT has the base then, and so has a call without names.
TEST(Session, AdapterNamesOfDisabledAdaptersAreTheBase) {
  const auto peft = tiny_lily();
  Session session(peft);
  const GenerationConfig config{.max_new_tokens = 6};
  const ModelInputs prompt{.input_ids = one_row(tiny_prompt(6, 1))};
  const GenerateCall lora{.adapter_names = {"lora"}};
  const auto base = generate(*tiny_decoder("llama"), prompt, config),
             adapted = session.generate(prompt, config, lora);
  EXPECT_FALSE(at::equal(adapted, base));
  {
    const auto off = peft->disable_adapter();
    EXPECT_TRUE(at::equal(session.generate(prompt, config, lora), base));
    EXPECT_EQ(session.tokens_read(), 6) << "the adapter had read it";
    EXPECT_TRUE(at::equal(session.generate(prompt, config), base));
    EXPECT_EQ(session.tokens_read(), 1);
  }
  EXPECT_TRUE(at::equal(session.generate(prompt, config, lora), adapted));
  EXPECT_EQ(session.tokens_read(), 1);
}

TEST(Session, FollowsAModelThatIsCast) {
  const auto model = tiny_decoder("llama");
  for (const bool compiled : {false, true}) {
    Session session(model, compiled ? std::optional(CompileOptions{.fullgraph = true}) : std::nullopt);
    const GenerationConfig config{.max_new_tokens = 4};
    const ModelInputs prompt{.input_ids = one_row(tiny_prompt(6, 1))};
    for (const auto dtype : {at::kFloat, at::kDouble, at::kFloat}) {
      model->to(dtype);
      for (int again = 0; again < 2; ++again)
        EXPECT_TRUE(at::equal(session.generate(prompt, config), generate(*model, prompt, config)));
    }
  }
}

TEST(Session, WrongUseIsAnError) {
  EXPECT_THROW(Session(std::shared_ptr<PreTrainedModel>()), UsageError);
  EXPECT_THROW(Session(std::shared_ptr<PeftModel>()), UsageError);
  const auto model = tiny_decoder("llama");
  const ModelInputs prompt{.input_ids = one_row(tiny_prompt(4, 1))};
  Session one(model);
  EXPECT_THROW(one.generate(prompt, {},
                            {.on_tokens =
                                 [&](const Ids&) {
                                   one.generate(prompt, {});
                                   return true;
                                 }}),
               UsageError);
  Session other(std::move(one));
  EXPECT_NO_THROW(other.generate(prompt, {}));
  EXPECT_THROW(one.generate(prompt, {}), UsageError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(one.tokens_read(), UsageError);
  EXPECT_THROW(one.forget(), UsageError);
}

TEST(Session, RefusesWhatIsNoOneText) {
  const auto model = tiny_decoder("llama");
  Session session(model);
  const auto ids = one_row(tiny_prompt(6, 1));
  EXPECT_THROW(session.generate({.input_ids = at::cat({ids, ids})}, {}), UsageError);
  EXPECT_THROW(session.generate({.input_ids = ids}, {.num_beams = 2}), UsageError);
  auto mask = at::ones_like(ids);
  mask[0][0] = 0;
  EXPECT_THROW(session.generate({.input_ids = ids, .attention_mask = mask}, {}), UsageError);
}

}  // namespace
}  // namespace graft
