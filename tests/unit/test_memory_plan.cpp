// The arena's plan: nothing alive overlaps, and it is not much larger than it must be.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <random>

#include "plan/memory_plan.h"

namespace graft::plan {
namespace {

constexpr int64_t kAlignment = 64;

int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Empty when the plan is right, else what is wrong with it. Looks at every pair.
std::string wrong_with(const MemoryPlan& plan, const std::vector<BufferLife>& lives) {
  if (plan.offsets.size() != lives.size()) return "a plan of another length";
  int64_t sum = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    const int64_t begin = plan.offsets[i], end = begin + lives[i].bytes;
    if (begin < 0 || begin % kAlignment || end > plan.total) return "a bad place for " + std::to_string(i);
    sum += rounded(lives[i].bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
      const int64_t other = plan.offsets[j], other_end = other + lives[j].bytes;
      if (together && begin < other_end && other < end)
        return std::to_string(j) + " and " + std::to_string(i) + " overlap";
    }
  }
  if (plan.total > sum) return "more than the sum of all";
  int64_t most = 0;
  for (const auto& life : lives) {  // the most is reached where some buffer starts
    int64_t alive = 0;
    for (const auto& other : lives)
      if (other.first <= life.first && life.first <= other.last) alive += rounded(other.bytes);
    most = std::max(most, alive);
  }
  if (plan.at_least != most) return "a wrong lower bound";
  return plan.total < most ? "less than what is alive at once" : "";
}

std::vector<BufferLife> random_lives(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<BufferLife> lives(count);
  for (auto& life : lives) {
    const size_t a = random() % count, b = a + random() % 20;
    life = {int64_t(random() % 100000), a, b};
  }
  return lives;
}

/// Like a model's forward and backward: each layer has temporaries of a few steps and saves something that
/// the backward takes in the opposite order.
std::vector<BufferLife> chain_lives(size_t layers, unsigned seed) {
  std::mt19937 random(seed);
  constexpr size_t kSteps = 10;
  const int64_t sizes[] = {4096, 65536, 65536, 262144, 1024};
  std::vector<BufferLife> lives;
  for (size_t layer = 0; layer < layers; ++layer) {
    const size_t forward = layer * kSteps, backward = (2 * layers - 1 - layer) * kSteps;
    for (size_t step = 0; step < kSteps; ++step) {
      const int64_t bytes = sizes[random() % 5];
      const bool saved = step % 4 == 0;
      lives.push_back(
          {bytes, forward + step, saved ? backward + kSteps - 1 - step : forward + step + 1 + random() % 3});
      lives.push_back({bytes, backward + step, backward + step + 1 + random() % 2});
    }
  }
  return lives;
}

TEST(MemoryPlan, BuffersThatFollowEachOtherShareASpace) {
  const std::vector<BufferLife> lives{{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {0, 0, 9}, {128, 3, 4}};
  const auto plan = plan_memory(lives, kAlignment);
  EXPECT_EQ(wrong_with(plan, lives), "");
  EXPECT_EQ(plan.total, 256);
  EXPECT_EQ(plan.at_least, 256);
}

TEST(MemoryPlan, ASmallBufferGoesIntoTheSmallestGap) {
  // After step 4 there are gaps of 512 bytes at 640 and of 384 at 1600; the last buffer takes the second.
  const std::vector<BufferLife> lives{{640, 0, 9}, {512, 0, 4}, {448, 0, 9},
                                      {384, 0, 4}, {320, 0, 9}, {256, 5, 9}};
  const auto plan = plan_memory(lives, kAlignment);
  EXPECT_EQ(wrong_with(plan, lives), "");
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 640, 1152, 1600, 1984, 1600}));
}

TEST(MemoryPlan, NothingNeedsNothing) {
  EXPECT_EQ(plan_memory({}, kAlignment).total, 0);
  const std::vector<BufferLife> empty(3);
  EXPECT_EQ(plan_memory(empty, kAlignment).total, 0);
  EXPECT_EQ(plan_memory(empty, kAlignment).offsets, (std::vector<int64_t>{0, 0, 0}));
}

TEST(MemoryPlan, NoPlanForWhatCannotBe) {
  const std::vector<BufferLife> negative{{-1, 0, 0}}, backwards{{1, 2, 1}};
  const std::vector<BufferLife> huge(2, {int64_t{1} << 62, 0, 0});
  EXPECT_THROW(plan_memory(negative, kAlignment), std::invalid_argument);
  EXPECT_THROW(plan_memory(backwards, kAlignment), std::invalid_argument);
  EXPECT_THROW(plan_memory(huge, kAlignment), std::invalid_argument);
}

RC_GTEST_PROP(MemoryPlan, LivingBuffersNeverOverlap, ()) {
  const auto life =
      rc::gen::map(rc::gen::tuple(rc::gen::inRange<int64_t>(0, 1000), rc::gen::inRange<size_t>(0, 40),
                                  rc::gen::inRange<size_t>(0, 10)),
                   [](const auto& t) {
                     return BufferLife{std::get<0>(t), std::get<1>(t), std::get<1>(t) + std::get<2>(t)};
                   });
  const auto lives = *rc::gen::container<std::vector<BufferLife>>(life);
  const auto plan = plan_memory(lives, kAlignment);
  const auto why = wrong_with(plan, lives);
  if (!why.empty()) RC_FAIL(why);
  RC_ASSERT(plan_memory(lives, kAlignment).offsets == plan.offsets);
}

TEST(MemoryPlan, IsCloseToTheLowerBound) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto loose = random_lives(1000, seed), chain = chain_lives(50, seed);
    const auto a = plan_memory(loose, kAlignment), b = plan_memory(chain, kAlignment);
    EXPECT_EQ(wrong_with(a, loose), "");
    EXPECT_EQ(wrong_with(b, chain), "");
    const double random_ratio = double(a.total) / double(a.at_least),
                 chain_ratio = double(b.total) / double(b.at_least);
    RecordProperty("random_ratio_" + std::to_string(seed), std::to_string(random_ratio));
    RecordProperty("chain_ratio_" + std::to_string(seed), std::to_string(chain_ratio));
    EXPECT_LT(random_ratio, 1.25);
    EXPECT_LT(chain_ratio, 1.05);
  }
}

// How long it takes is in the report (an optimised build: about 150 ms), and not a limit: machines differ.
TEST(MemoryPlan, ThousandsOfBuffers) {
  for (const auto& lives : {random_lives(5000, 1), chain_lives(250, 1)}) {
    const auto start = std::chrono::steady_clock::now();
    const auto plan = plan_memory(lives, kAlignment);
    const auto ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    RecordProperty("ms_" + std::to_string(lives.size()) + "_" + std::to_string(plan.total),
                   std::to_string(ms));
    size_t largest = 0, all = 0;
    for (const auto& life : lives) {
      largest = std::max(largest, static_cast<size_t>(life.bytes));
      all += static_cast<size_t>(life.bytes);
    }
    EXPECT_GE(static_cast<size_t>(plan.total), largest);
    EXPECT_LT(static_cast<size_t>(plan.total), all);
  }
}

TEST(MemoryPlan, AFewThatAreMostOfItMayComeAndGo) {
  const std::vector<BufferLife> lives{{1000, 0, 9}, {64, 1, 3}, {1000, 2, 8}, {128, 2, 4}};
  const auto plan = plan_without_largest(lives, kAlignment);
  EXPECT_EQ(plan.total, 192);
  EXPECT_EQ(plan.offsets[0], -1);
  EXPECT_EQ(plan.offsets[2], -1);
  EXPECT_NE(plan.offsets[1], plan.offsets[3]);
  const std::vector<BufferLife> alike{{1000, 0, 9}, {640, 1, 3}, {900, 2, 8}};
  EXPECT_EQ(plan_without_largest(alike, kAlignment).offsets, plan_memory(alike, kAlignment).offsets);
  EXPECT_EQ(plan_without_largest({}, kAlignment).total, 0);
}

}  // namespace
}  // namespace graft::plan
