#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "graft/cache.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "graft/model.h"

namespace graft {
namespace {

at::Tensor tokens(int64_t from, int64_t count) {
  return torch::arange(from, from + count, torch::kFloat).view({1, 1, count, 1});
}

TEST(GrowingCache, GivesAllTokensSoFar) {
  GrowingCache cache;
  cache.update(0, tokens(0, 3), tokens(10, 3));
  cache.advance(3);
  EXPECT_EQ(cache.attended_length(2), 5);
  const auto [keys, values] = cache.update(0, tokens(3, 2), tokens(13, 2));
  EXPECT_TRUE(torch::equal(keys, tokens(0, 5)));
  EXPECT_TRUE(torch::equal(values, tokens(10, 5)));
}

TEST(StaticCache, WritesInPlaceAndKeepsItsShape) {
  StaticCache cache(6);
  const auto [first, unused] = cache.update(0, tokens(1, 3), tokens(1, 3));
  cache.advance(3);
  const auto [keys, values] = cache.update(0, tokens(4, 2), tokens(4, 2));
  EXPECT_EQ(first.data_ptr(), keys.data_ptr());
  EXPECT_TRUE(torch::equal(keys.flatten(), torch::tensor({1.f, 2.f, 3.f, 4.f, 5.f, 0.f})));
}

at::Tensor two_rows(float first, float second) {
  return torch::tensor({first, second}).view({2, 1, 1, 1}).expand({2, 1, 3, 1}).contiguous();
}

TEST(StaticCache, RowsChangePlacesInPlace) {
  StaticCache cache(4);
  const auto [keys, values] = cache.update(0, two_rows(1, 2), two_rows(3, 4));
  cache.advance(3);
  cache.reorder(torch::tensor({1, 0}, torch::kLong));
  EXPECT_TRUE(torch::equal(keys.slice(2, 0, 3), two_rows(2, 1)));
  cache.reorder(torch::tensor({1, 1}, torch::kLong));
  EXPECT_TRUE(torch::equal(values.slice(2, 0, 3), two_rows(3, 3)));
}

TEST(GrowingCache, RowsChangePlaces) {
  GrowingCache cache;
  cache.update(0, two_rows(1, 2), two_rows(3, 4));
  cache.advance(3);
  cache.reorder(torch::tensor({1, 1}, torch::kLong));
  const auto [keys, values] = cache.update(0, two_rows(5, 6), two_rows(5, 6));
  EXPECT_TRUE(torch::equal(keys.slice(2, 0, 3), two_rows(2, 2)));
  EXPECT_TRUE(torch::equal(values.slice(2, 3), two_rows(5, 6)));
}

TEST(StaticCache, GoesOnInALargerOne) {
  StaticCache cache(3);
  cache.update(0, tokens(1, 3), tokens(1, 3));
  cache.advance(3);
  const auto larger = cache.enlarged(5);
  EXPECT_EQ(larger->seen(), 3);
  const auto [keys, values] = larger->update(0, tokens(4, 2), tokens(4, 2));
  EXPECT_TRUE(torch::equal(keys, tokens(1, 5)));
  EXPECT_TRUE(torch::equal(values, tokens(1, 5)));
  EXPECT_EQ(larger->seen_tensor(at::kCPU).item<int64_t>(), 3);
}

TEST(StaticCache, RefusesMoreThanFits) {
  StaticCache cache(4);
  cache.update(0, tokens(0, 3), tokens(0, 3));
  cache.advance(3);
  EXPECT_EQ(cache.attended_length(1), 4);
  EXPECT_THROW(cache.attended_length(2), UsageError);
  EXPECT_THROW(StaticCache(0), UsageError);
}

TEST(StaticCache, StartsAgainAfterReset) {
  StaticCache cache(4);
  cache.update(0, tokens(0, 4), tokens(0, 4));
  cache.advance(4);
  cache.reset();
  EXPECT_EQ(cache.seen(), 0);
  EXPECT_EQ(cache.seen_tensor(at::kCPU).item<int64_t>(), 0);
}

TEST(GrowingCache, TakesTokensBack) {
  GrowingCache cache;
  cache.update(0, tokens(0, 3), tokens(10, 3));
  cache.advance(3);
  cache.drop_last(2);
  EXPECT_EQ(cache.seen(), 1);
  const auto [keys, values] = cache.update(0, tokens(7, 2), tokens(17, 2));
  EXPECT_TRUE(torch::equal(keys.flatten(), torch::tensor({0.f, 7.f, 8.f})));
  EXPECT_TRUE(torch::equal(values.flatten(), torch::tensor({10.f, 17.f, 18.f})));
  EXPECT_THROW(cache.drop_last(2), UsageError);
}

TEST(StaticCache, TakesTokensBack) {
  StaticCache cache(4);
  cache.update(0, tokens(1, 4), tokens(1, 4));
  cache.advance(4);
  cache.drop_last(3);
  EXPECT_EQ(cache.seen(), 1);
  EXPECT_EQ(cache.seen_tensor(at::kCPU).item<int64_t>(), 1);
  EXPECT_EQ(cache.attended_length(3), 4);
  const auto [keys, values] = cache.update(0, tokens(8, 1), tokens(8, 1));
  EXPECT_TRUE(torch::equal(keys.flatten().slice(0, 0, 2), torch::tensor({1.f, 8.f})));
  EXPECT_THROW(cache.drop_last(2), UsageError);
}

/// A model of one layer: keys are the tokens, values their squares; gives all values that are held.
ModelOutput attend(const ModelInputs& inputs) {
  const auto x = inputs.input_ids.to(torch::kFloat).view({1, 1, -1, 1});
  auto [keys, values] = inputs.past_key_values->update(0, x, x * x);
  inputs.past_key_values->advance(x.size(2));
  return {.logits = keys + values};
}

at::Tensor ids(int64_t from, int64_t count) { return torch::arange(from, from + count).view({1, count}); }

TEST(StaticCache, OneProgramServesAllSteps) {
  const at::NoGradGuard no_grad;
  reset();
  const auto fast = compile(attend, {.fullgraph = true});
  const auto cache = std::make_shared<StaticCache>(12), other = std::make_shared<StaticCache>(12);
  attend({.input_ids = ids(1, 3), .past_key_values = cache});
  attend({.input_ids = ids(1, 3), .past_key_values = other});
  for (int64_t step = 0; step < 9; ++step) {
    const auto got = fast({.input_ids = ids(4 + step, 1), .past_key_values = cache}).logits;
    const auto want = attend({.input_ids = ids(4 + step, 1), .past_key_values = other}).logits;
    EXPECT_TRUE(torch::equal(got, want)) << step;
    EXPECT_EQ(cache->seen(), 4 + step);
    EXPECT_EQ(cache->seen_tensor(at::kCPU).item<int64_t>(), 4 + step);
  }
  EXPECT_EQ(counters().graphs, 1);
  EXPECT_EQ(counters().recompiles, 0);
  // The program writes where it is told to: what does not fit is refused before it runs.
  EXPECT_THROW(fast({.input_ids = ids(13, 1), .past_key_values = cache}), UsageError);
  EXPECT_EQ(cache->seen(), 12);
}

TEST(StaticCache, AnotherCacheOfTheShapeIsTheSameProgram) {
  const at::NoGradGuard no_grad;
  reset();
  const auto fast = compile(attend, {.fullgraph = true});
  for (int64_t round = 0; round < 4; ++round) {
    const auto cache = std::make_shared<StaticCache>(4);
    attend({.input_ids = ids(round, 2), .past_key_values = cache});
    const auto got = fast({.input_ids = ids(7, 1), .past_key_values = cache}).logits.flatten();
    EXPECT_EQ(got[0].item<float>(), static_cast<float>(round + round * round));
    EXPECT_EQ(got[2].item<float>(), 56.f);
  }
  EXPECT_EQ(counters().graphs, 1);
}

TEST(StaticCache, FirstCallMakesBuffersAndRunsEagerly) {
  const at::NoGradGuard no_grad;
  reset();
  const auto cache = std::make_shared<StaticCache>(4);
  const auto fast = compile(attend);
  fast({.input_ids = ids(1, 2), .past_key_values = cache});
  EXPECT_EQ(cache->seen(), 2);
  EXPECT_EQ(counters().graph_breaks, 1);
  fast({.input_ids = ids(3, 1), .past_key_values = cache});
  EXPECT_EQ(cache->seen(), 3);
  EXPECT_EQ(counters().graphs, 1);
}

TEST(StaticCache, WhatFitsNoMemoryIsAnErrorAtOnce) {
  for (const auto capacity : {int64_t{1} << 50, INT64_MAX}) {
    EXPECT_THROW(StaticCache{capacity}, UsageError);
    EXPECT_THROW(EncoderDecoderCache(capacity, 4), UsageError);
    EXPECT_THROW(EncoderDecoderCache(4, capacity), UsageError);
  }
}

/// What is held follows the model's dtype: index_copy_ and cat refused the two together.
TEST(Caches, FollowAModelThatIsCast) {
  const at::NoGradGuard no_grad;
  const auto step = [](KVCache& cache, const at::Tensor& x) {
    const auto [keys, values] = cache.update(0, x, x);
    cache.advance(x.size(2));
    EXPECT_EQ(keys.scalar_type(), x.scalar_type());
    EXPECT_EQ(values.scalar_type(), x.scalar_type());
    return keys.flatten().slice(0, 0, cache.seen()).to(at::kFloat);
  };
  StaticCache fixed(6);
  GrowingCache growing;
  for (KVCache* cache : {static_cast<KVCache*>(&fixed), static_cast<KVCache*>(&growing)}) {
    step(*cache, tokens(1, 2));
    EXPECT_TRUE(torch::equal(step(*cache, tokens(7, 1).to(at::kDouble)), torch::tensor({1.f, 2.f, 7.f})));
    EXPECT_TRUE(
        torch::equal(step(*cache, tokens(8, 1).to(at::kBFloat16)), torch::tensor({1.f, 2.f, 7.f, 8.f})));
    cache->reset();
    EXPECT_TRUE(torch::equal(step(*cache, tokens(3, 2)), torch::tensor({3.f, 4.f})));
  }
}

/// A program is given the buffers, and cannot put others in their place: the message says what can.
TEST(Caches, AProgramRefusesWhatHasAnotherDtype) {
  const at::NoGradGuard no_grad;
  auto dtype = at::kFloat;
  const auto model = [&](const ModelInputs& inputs) {
    const auto x = inputs.input_ids.to(dtype).view({1, 1, -1, 1});
    auto [keys, values] = inputs.past_key_values->update(0, x, x);
    inputs.past_key_values->advance(x.size(2));
    return ModelOutput{.logits = keys + values};
  };
  const auto cache = std::make_shared<StaticCache>(6);
  model({.input_ids = ids(1, 2), .past_key_values = cache});
  dtype = at::kDouble;
  const auto fast = compile(model, {.fullgraph = true});
  EXPECT_THROW(fast({.input_ids = ids(3, 1), .past_key_values = cache}), UsageError);
  EXPECT_EQ(cache->seen(), 2);
  model({.input_ids = ids(3, 1), .past_key_values = cache});
  EXPECT_EQ(fast({.input_ids = ids(4, 1), .past_key_values = cache}).logits.flatten()[2].item<double>(), 6.);
}

/// A program for a call without a cache was taken for one with a cache: the guards did not see the
/// difference.
TEST(GrowingCache, IsNeverServedByAProgramWithoutOne) {
  const at::NoGradGuard no_grad;
  reset();
  const auto fast = compile([](const ModelInputs& inputs) {
    return inputs.past_key_values ? attend(inputs)
                                  : ModelOutput{.logits = inputs.input_ids.to(torch::kFloat)};
  });
  fast({.input_ids = ids(1, 2)});
  const auto cache = std::make_shared<GrowingCache>();
  for (int64_t step = 0; step < 3; ++step)
    EXPECT_EQ(fast({.input_ids = ids(1, 2), .past_key_values = cache}).logits.numel(), 2 * (step + 1));
}

}  // namespace
}  // namespace graft
