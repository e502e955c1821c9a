// Continuous batching: whatever else is in the batch, a request gets what it gets alone, and nothing is
// compiled for it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "graft/error.h"
#include "unit/tiny_decoders.h"

namespace graft {
namespace {
using testing_tools::one_row;
using testing_tools::tiny_decoder;
using testing_tools::tiny_lily;
using testing_tools::tiny_prompt;
using testing_tools::tokens_in;
using Ids = std::vector<int64_t>;

/// What requests were told, by id.
struct Results {
  std::map<int64_t, Ids> tokens;
  std::map<int64_t, Finish> finish;

  std::function<bool(const BatchToken&)> listener() {
    return [this](const BatchToken& told) {
      tokens[told.id].push_back(told.token);
      EXPECT_FALSE(finish.contains(told.id)) << "told after its end";
      if (told.finish) finish[told.id] = *told.finish;
      return true;
    };
  }
};

Ids alone(PreTrainedModel& model, const BatchRequest& request) {
  const auto ids = one_row(request.input_ids);
  return tokens_in(generate(model, {.input_ids = ids, .attention_mask = at::ones_like(ids)}, request.config)
                       .slice(1, ids.size(1)));
}

void finish_all(BatchGenerator& batch) {
  for (int step = 0; batch.step(); ++step) ASSERT_LT(step, 1000);
}

class Batch : public ::testing::TestWithParam<const char*> {};

/// More requests than rows, of different lengths, some coming while others are at work.
TEST_P(Batch, EachRequestGetsWhatItGetsAlone) {
  const auto model = tiny_decoder(GetParam());
  reset();
  BatchGenerator batch(model, {.rows = 3, .capacity = 40, .buckets = {16}, .compile = {.fullgraph = true}});
  batch.warm_up();
  EXPECT_EQ(counters().graphs, 2);  // up to 16 columns, and up to 40
  Results results;
  std::map<int64_t, Ids> want;
  const auto submit = [&](int64_t length, int64_t new_tokens) {
    BatchRequest request{.input_ids = tiny_prompt(length, static_cast<uint64_t>(length)),
                         .config = {.max_new_tokens = new_tokens},
                         .on_token = results.listener()};
    auto tokens = alone(*model, request);
    want[batch.submit(std::move(request))] = std::move(tokens);
  };
  for (const auto& [length, new_tokens] :
       {std::pair<int64_t, int64_t>{5, 20}, {1, 3}, {12, 9}, {7, 1}, {20, 21}})
    submit(length, new_tokens);
  for (int step = 0; step < 4; ++step) EXPECT_TRUE(batch.step());
  submit(3, 30);
  submit(15, 2);
  finish_all(batch);
  EXPECT_EQ(results.tokens, want);
  for (const auto& [id, why] : results.finish) EXPECT_EQ(why, Finish::length) << id;
  EXPECT_TRUE(batch.idle());
  EXPECT_FALSE(batch.step());
  EXPECT_EQ(counters().graphs, 2);
  EXPECT_EQ(counters().recompiles, 0);
  EXPECT_EQ(counters().graph_breaks, 0);
  EXPECT_EQ(counters().mismatches, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Batch, ::testing::Values("llama", "gpt2", "bloom", "opt"));

BatchOptions eager(int64_t rows, int64_t capacity = 40) {
  return {.rows = rows, .capacity = capacity, .buckets = {}, .compile = {.backend = Backend::eager}};
}

TEST(Batch, EndsAtStopTokensAndDrawsByItsOwnSeed) {
  const auto model = tiny_decoder("llama");
  BatchGenerator batch(model, eager(2));
  Results results;
  std::map<int64_t, Ids> want;
  const auto free = alone(*model, {.input_ids = tiny_prompt(6, 1), .config = {.max_new_tokens = 12}});
  const GenerationConfig configs[] = {
      {.max_new_tokens = 12, .eos_token_id = {free[4], 36}},
      {.max_new_tokens = 9, .do_sample = true, .temperature = 2, .top_k = 0, .seed = 5},
      {.max_new_tokens = 9, .do_sample = true, .top_p = 0.8, .seed = 6},
      {.max_new_tokens = 15, .repetition_penalty = 1.8},
      {.max_new_tokens = 15, .no_repeat_ngram_size = 2},
      {.max_new_tokens = 12, .min_new_tokens = 8, .eos_token_id = {free[1]}},
      {.max_new_tokens = 4, .suppress_tokens = {free[0]}},
      {.max_length = 8},
  };
  for (const auto& config : configs) {
    BatchRequest request{.input_ids = tiny_prompt(6, 1), .config = config, .on_token = results.listener()};
    auto tokens = alone(*model, request);
    want[batch.submit(std::move(request))] = std::move(tokens);
  }
  finish_all(batch);
  EXPECT_EQ(results.tokens, want);
  EXPECT_EQ(results.finish.at(1), Finish::stop);
  EXPECT_EQ(results.finish.at(2), Finish::length);
  EXPECT_EQ(results.tokens.at(1).back(), results.tokens.at(1).size() == 5 ? free[4] : 36);
}

TEST(Batch, ACancelledRequestLeavesAndOthersStayAsTheyAre) {
  const auto model = tiny_decoder("llama");
  BatchGenerator batch(model, eager(2));
  Results results;
  const auto submit = [&](uint64_t seed) {
    return batch.submit({.input_ids = tiny_prompt(5, seed),
                         .config = {.max_new_tokens = 10},
                         .on_token = results.listener()});
  };
  const auto first = submit(1), second = submit(2), third = submit(3), fourth = submit(4);
  batch.step();
  EXPECT_TRUE(batch.cancel(first));   // at work
  EXPECT_TRUE(batch.cancel(fourth));  // waiting
  EXPECT_FALSE(batch.cancel(first));
  EXPECT_FALSE(batch.cancel(99));
  const auto told = results.tokens.at(first).size();
  finish_all(batch);
  EXPECT_EQ(results.tokens.at(first).size(), told);
  EXPECT_FALSE(results.tokens.contains(fourth));
  for (const auto& [id, seed] : {std::pair<int64_t, uint64_t>{second, 2}, {third, 3}})
    EXPECT_EQ(results.tokens.at(id),
              alone(*model, {.input_ids = tiny_prompt(5, seed), .config = {.max_new_tokens = 10}}));
  EXPECT_FALSE(batch.cancel(second));  // done
}

TEST(Batch, IsIdleOnceTheLastRequestIsCancelled) {
  BatchGenerator batch(tiny_decoder("llama"), eager(2));
  EXPECT_TRUE(batch.idle());
  EXPECT_FALSE(batch.step());
  const auto id = batch.submit({.input_ids = {4, 5}});
  EXPECT_FALSE(batch.idle());
  batch.step();
  EXPECT_TRUE(batch.cancel(id));
  EXPECT_TRUE(batch.idle());
  EXPECT_FALSE(batch.step());
}

TEST(Batch, ACallbackEndsItsRequestByFalse) {
  BatchGenerator batch(tiny_decoder("llama"), eager(1));
  int told = 0;
  batch.submit({.input_ids = {4, 5}, .config = {.max_new_tokens = 30}, .on_token = [&](const BatchToken&) {
                  return ++told < 4;
                }});
  finish_all(batch);
  EXPECT_EQ(told, 4);
}

/// The one that threw leaves; step() throws it once the others have their token.
TEST(Batch, ACallbackThatThrowsEndsItsRequestOnly) {
  const auto model = tiny_decoder("gpt2");
  BatchGenerator batch(model, eager(3));
  Results results;
  const GenerationConfig config{.max_new_tokens = 8};
  const auto throws = [](const BatchToken&) -> bool { throw std::runtime_error("no more, please"); };
  batch.submit({.input_ids = tiny_prompt(4, 1), .config = config, .on_token = throws});
  int on_error = 0;
  batch.submit({.input_ids = tiny_prompt(4, 1),
                .config = config,
                .on_token = throws,
                .on_error = [&](const std::exception_ptr& why) {
                  EXPECT_THROW(std::rethrow_exception(why), std::runtime_error);
                  ++on_error;
                }});
  const auto other =
      batch.submit({.input_ids = tiny_prompt(9, 2), .config = config, .on_token = results.listener()});
  EXPECT_THROW(batch.step(), std::runtime_error);
  EXPECT_EQ(on_error, 1);
  EXPECT_EQ(results.tokens.at(other).size(), 2);
  finish_all(batch);
  EXPECT_EQ(results.tokens.at(other), alone(*model, {.input_ids = tiny_prompt(9, 2), .config = config}));
}

TEST(Batch, CallbacksMaySubmitAndCancel) {
  BatchGenerator batch(tiny_decoder("llama"), eager(2));
  Results results;
  const auto listen = results.listener();
  int64_t other = 0, next = 0;
  other = batch.submit({.input_ids = {7}, .config = {.max_new_tokens = 20}, .on_token = listen});
  batch.submit({.input_ids = {8}, .config = {.max_new_tokens = 5}, .on_token = [&](const BatchToken& told) {
                  if (!told.finish) return true;
                  EXPECT_FALSE(batch.cancel(told.id));
                  EXPECT_TRUE(batch.cancel(other));
                  next =
                      batch.submit({.input_ids = {9}, .config = {.max_new_tokens = 3}, .on_token = listen});
                  return true;
                }});
  finish_all(batch);
  EXPECT_LT(results.tokens.at(other).size(), 20);
  EXPECT_EQ(results.tokens.at(next).size(), 3);
}

TEST(Batch, WhatCannotBeGeneratedIsAnErrorAtSubmit) {
  BatchGenerator batch(tiny_decoder("llama"), eager(1, 20));
  EXPECT_NO_THROW(batch.submit({.input_ids = Ids(11, 4), .config = {.max_new_tokens = 10}}));
  EXPECT_THROW(batch.submit({.input_ids = Ids(12, 4), .config = {.max_new_tokens = 10}}), UsageError);
  EXPECT_THROW(batch.submit({.input_ids = {}}), UsageError);
  EXPECT_THROW(batch.submit({.input_ids = {4, 37}}), UsageError);
  EXPECT_THROW(batch.submit({.input_ids = {4}, .config = {.max_new_tokens = 0}}), UsageError);
  EXPECT_THROW(batch.submit({.input_ids = {4}, .config = {.prompt_lookup_num_tokens = 3}}), UsageError);
  EXPECT_THROW(batch.submit({.input_ids = {4}, .adapter_name = "german"}), UsageError);
  EXPECT_THROW(batch.warm_up(), UsageError);  // not idle
  finish_all(batch);
  // GPT-2 has a table of positions: more do not exist, whatever a row has room for.
  BatchGenerator positions(tiny_decoder("gpt2"), eager(1, 100));
  EXPECT_NO_THROW(positions.submit({.input_ids = Ids(55, 4), .config = {.max_new_tokens = 10}}));
  EXPECT_THROW(positions.submit({.input_ids = Ids(56, 4), .config = {.max_new_tokens = 10}}), UsageError);
}

TEST(Batch, WhatHasNoRowsOfItsOwnIsAnErrorAtOnce) {
  const auto model = tiny_decoder("llama");
  EXPECT_THROW(BatchGenerator(model, eager(0)), UsageError);
  EXPECT_THROW(BatchGenerator(model, eager(1, 0)), UsageError);
  EXPECT_THROW(BatchGenerator(model, {.rows = 1, .capacity = 10, .buckets = {11}}), UsageError);
  const auto dynamic = tiny_decoder(
      "llama", 3, R"("rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0})");
  EXPECT_THROW(BatchGenerator(dynamic, eager(1, 65)), UsageError);
  EXPECT_NO_THROW(BatchGenerator(dynamic, eager(1, 64)));
  const auto t5 = AutoModelForAny::from_config(Config::from_json(
      R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 37, "d_model": 8,
          "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "is_encoder_decoder": true})"));
  EXPECT_THROW(BatchGenerator(t5, eager(1)), UsageError);
}

std::shared_ptr<PeftModel> with_adapters(const std::vector<std::string>& names) {
  auto peft = std::make_shared<PeftModel>(tiny_decoder("llama"));
  for (const auto& name : names) {
    peft->add_adapter(name, LoraConfig{.r = 3, .target_modules = {"q_proj", "v_proj", "down_proj"}});
    const at::NoGradGuard no_grad;
    for (const auto& [key, tensor] : peft->trainable_tensors(name))
      tensor.add_(at::randn(tensor.sizes()) * 0.3);
  }
  peft->eval();
  return peft;
}

TEST(Batch, EachRowHasItsAdapter) {
  const auto peft = with_adapters({"de", "fr"});
  reset();
  BatchGenerator batch(peft, {.rows = 2, .capacity = 32, .buckets = {32}, .compile = {.fullgraph = true}});
  batch.warm_up();
  const auto graphs = counters().graphs;
  Results results;
  std::map<int64_t, Ids> want;
  std::set<Ids> different;
  const GenerationConfig config{.max_new_tokens = 12};
  for (const auto* name : {"de", "__base__", "fr", "de"}) {
    const auto prompt = tiny_prompt(6, 1);
    const auto tokens = tokens_in(
        generate(*peft, {.input_ids = one_row(prompt)}, config, {.adapter_names = {name}}).slice(1, 6));
    different.insert(tokens);
    want[batch.submit(
        {.input_ids = prompt, .config = config, .adapter_name = name, .on_token = results.listener()})] =
        tokens;
  }
  EXPECT_EQ(different.size(), 3);
  finish_all(batch);
  EXPECT_EQ(results.tokens, want);
  EXPECT_EQ(counters().graphs, graphs);
  EXPECT_EQ(counters().recompiles, 0);
}

// Lily's router is a mean over the tokens of a call, in which the rows of several requests were one.
TEST(Batch, RowsOfWhoLooksAtAllTokensAreApart) {
  const auto peft = tiny_lily();
  for (const auto& compile : {CompileOptions(), CompileOptions{.backend = Backend::eager}}) {
    BatchGenerator batch(peft, {.rows = 3, .capacity = 32, .buckets = {32}, .compile = compile});
    Results results;
    std::map<int64_t, Ids> want;
    const GenerationConfig config{.max_new_tokens = 10};
    int64_t length = 4;
    for (const auto* name : {"lily", "lily", "lora", "lily", "__base__", "lily"}) {
      const auto prompt = tiny_prompt(++length, 1);
      const auto made =
          generate(*peft, {.input_ids = one_row(prompt)}, config, {.adapter_names = {name}}).slice(1, length);
      want[batch.submit(
          {.input_ids = prompt, .config = config, .adapter_name = name, .on_token = results.listener()})] =
          tokens_in(made);
    }
    finish_all(batch);
    EXPECT_EQ(results.tokens, want);
  }
}

TEST(Batch, RequestsForDisabledAdaptersAreTheBase) {
  const auto peft = with_adapters({"de"});
  BatchGenerator batch(peft, {.rows = 2, .capacity = 32, .buckets = {32}});
  const auto prompt = tiny_prompt(6, 1);
  const GenerationConfig config{.max_new_tokens = 8};
  const auto run = [&] {
    Results results;
    for (int i = 0; i < 2; ++i)
      batch.submit(
          {.input_ids = prompt, .config = config, .adapter_name = "de", .on_token = results.listener()});
    finish_all(batch);
    EXPECT_EQ(results.tokens.begin()->second, results.tokens.rbegin()->second);
    return results.tokens.begin()->second;
  };
  const auto base = alone(*tiny_decoder("llama"), {.input_ids = prompt, .config = config}), adapted = run();
  EXPECT_NE(adapted, base);
  {
    const auto off = peft->disable_adapter();
    EXPECT_EQ(run(), base);
  }
  EXPECT_EQ(run(), adapted);
}

// Two requests whose callbacks did this ran for ever.
TEST(Batch, AStepInsideAStepIsAnError) {
  const auto model = tiny_decoder("llama");
  BatchGenerator batch(model, eager(2));
  Results results;
  std::vector<std::string> said;
  const GenerationConfig config{.max_new_tokens = 3};
  const auto again = [&](auto nested) {
    batch.submit({.input_ids = {4, 5},
                  .config = config,
                  .on_token =
                      [nested](const BatchToken&) {
                        nested();
                        return true;
                      },
                  .on_error =
                      [&](const std::exception_ptr& why) {
                        try {
                          std::rethrow_exception(why);
                        } catch (const UsageError& error) {
                          said.emplace_back(error.what());
                        }
                      }});
  };
  again([&] { batch.step(); });
  again([&] { batch.step(); });
  again([&] { batch.warm_up(); });
  const auto other =
      batch.submit({.input_ids = tiny_prompt(4, 1), .config = config, .on_token = results.listener()});
  finish_all(batch);
  ASSERT_EQ(said.size(), 3);
  EXPECT_NE(said[0].find("[batch] step()"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("[batch] step()"), std::string::npos) << said[1];
  EXPECT_NE(said[2].find("[batch] warm_up()"), std::string::npos) << said[2];
  EXPECT_EQ(results.tokens.at(other), alone(*model, {.input_ids = tiny_prompt(4, 1), .config = config}));
  EXPECT_TRUE(batch.idle());
}

// Beyond memory the allocator's own error came, or none, and the program was ended.
TEST(Batch, WhatFitsNoMemoryIsAnErrorAtOnce) {
  const auto model = tiny_decoder("llama");
  for (const auto& [rows, capacity] : {std::pair<int64_t, int64_t>{1'000'000, 1'000'000},
                                       {int64_t{1} << 40, int64_t{1} << 40},
                                       {int64_t{1} << 40, 1},
                                       {INT64_MAX, 1},
                                       {1, INT64_MAX},
                                       {int64_t{1} << 32, INT32_MAX}})
    EXPECT_THROW(BatchGenerator(model, eager(rows, capacity)), UsageError) << rows << " of " << capacity;
}

// What the rows had read had the model's old dtype, and every later step failed.
TEST(Batch, FollowsAModelThatIsCast) {
  const auto model = tiny_decoder("llama");
  for (const auto& compile : {CompileOptions(), CompileOptions{.backend = Backend::eager}}) {
    BatchGenerator batch(model, {.rows = 2, .capacity = 32, .buckets = {32}, .compile = compile});
    const BatchRequest request{.input_ids = tiny_prompt(5, 1), .config = {.max_new_tokens = 9}};
    for (const auto dtype : {at::kFloat, at::kDouble, at::kFloat}) {
      model->to(dtype);
      Results results;
      auto told = request;
      told.on_token = results.listener();
      const auto id = batch.submit(told);
      finish_all(batch);
      EXPECT_EQ(results.tokens.at(id), alone(*model, request)) << dtype;
    }
    // While a row is at work, too: it goes on from what it has read.
    Results results;
    auto told = request;
    told.on_token = results.listener();
    const auto first = batch.submit(told);
    batch.step();
    model->to(at::kDouble);
    const auto second = batch.submit(told);
    finish_all(batch);
    const auto want = alone(*model, request);
    EXPECT_EQ(results.tokens.at(first), want);
    EXPECT_EQ(results.tokens.at(second), want);
    model->to(at::kFloat);
  }
}

TEST(Batch, WrongUseIsAnError) {
  EXPECT_THROW(BatchGenerator(std::shared_ptr<PreTrainedModel>(), eager(1)), UsageError);
  EXPECT_THROW(BatchGenerator(std::shared_ptr<PeftModel>(), eager(1)), UsageError);
  BatchGenerator one(tiny_decoder("llama"), eager(1));
  BatchGenerator other(std::move(one));
  EXPECT_TRUE(other.idle());
  EXPECT_THROW(one.idle(), UsageError);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(one.step(), UsageError);
  EXPECT_THROW(one.submit({.input_ids = {4}}), UsageError);
  EXPECT_THROW(one.cancel(1), UsageError);
  EXPECT_THROW(one.warm_up(), UsageError);
}

TEST(Batch, ARequestWhoseAdapterIsGoneFails) {
  const auto peft = with_adapters({"de", "fr"});
  BatchGenerator batch(peft, eager(2));
  EXPECT_THROW(batch.submit({.input_ids = {4}, .adapter_name = "es"}), UsageError);
  Results results;
  const GenerationConfig config{.max_new_tokens = 6};
  batch.submit({.input_ids = {4}, .config = config, .adapter_name = "de", .on_token = results.listener()});
  batch.submit({.input_ids = {4}, .config = config, .adapter_name = "fr", .on_token = results.listener()});
  const auto waits = batch.submit(
      {.input_ids = {4}, .config = config, .adapter_name = "de", .on_token = results.listener()});
  batch.step();
  peft->delete_adapter("de");
  EXPECT_THROW(batch.step(), UsageError);
  EXPECT_EQ(results.tokens.at(1).size(), 2);
  EXPECT_EQ(results.tokens.at(2).size(), 3);
  finish_all(batch);
  EXPECT_EQ(results.tokens.at(2).size(), 6);
  EXPECT_FALSE(results.tokens.contains(waits));
}

TEST(Batch, RequestsComeFromOtherThreads) {
  const auto model = tiny_decoder("llama");
  BatchGenerator batch(model, eager(3));
  const auto prompt = tiny_prompt(4, 1);
  const auto want = alone(*model, {.input_ids = prompt, .config = {.max_new_tokens = 5}});
  std::mutex guard;
  std::map<int64_t, Ids> got;
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int request = 0; request < 5; ++request) {
        const auto id = batch.submit(
            {.input_ids = prompt, .config = {.max_new_tokens = 5}, .on_token = [&](const BatchToken& told) {
               const std::lock_guard lock(guard);
               got[told.id].push_back(told.token);
               return true;
             }});
        if (request == 4) batch.cancel(id);
      }
    });
  std::thread stepping([&] {
    for (int step = 0; step < 60; ++step) batch.step(), std::this_thread::yield();
  });
  for (auto& thread : threads) thread.join();
  stepping.join();
  finish_all(batch);
  int64_t whole = 0;
  for (const auto& [id, tokens] : got) whole += tokens == want;
  EXPECT_GE(whole, 12);  // three were cancelled, in time or not
  EXPECT_TRUE(batch.idle());
}

}  // namespace
}  // namespace graft
