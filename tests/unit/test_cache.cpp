#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "graft/cache.h"
#include "graft/error.h"

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

}  // namespace
}  // namespace graft
