#include "adapters/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace graft::adapters {
namespace {

/// numpy.random.SeedSequence(seed).generate_state(words): O'Neill's seed_seq_fe with a pool of four words.
std::vector<uint32_t> seed_words(uint64_t seed, size_t words) {
  constexpr uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;
  const auto folded = [](uint32_t value) { return value ^ (value >> 16); };
  uint32_t hash = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875;
    return folded(value * hash);
  };
  std::array<uint32_t, 4> pool{};
  const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hashed(entropy[i]);
  for (size_t from = 0; from < pool.size(); ++from)
    for (size_t to = 0; to < pool.size(); ++to)
      if (from != to) pool[to] = folded(kMixLeft * pool[to] - kMixRight * hashed(pool[from]));
  std::vector<uint32_t> state(words);
  uint32_t output = 0x8b51f9dd;
  for (size_t i = 0; i < words; ++i) {
    const uint32_t value = pool[i % pool.size()] ^ output;
    output *= 0x58f38ded;
    state[i] = folded(value * output);
  }
  return state;
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const auto words = seed_words(seed, 8);
  const auto pair = [&](size_t i) {
    const auto whole = [&](size_t at) { return Wide{words[at]} | Wide{words[at + 1]} << 32; };
    return whole(i) << 64 | whole(i + 2);
  };
  const Wide start = pair(0);
  increment_ = pair(4) << 1 | 1;
  state_ = 0;
  next64();
  state_ += start;
  next64();
}

/// PCG XSL RR 128/64.
uint64_t NumpyRandom::next64() {
  constexpr Wide kMultiplier = Wide{0x2360ed051fc65da4} << 64 | Wide{0x4385df649fccf645};
  state_ = state_ * kMultiplier + increment_;
  const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint32_t NumpyRandom::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t both = next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

/// Lemire's method, without bias.
uint64_t NumpyRandom::scaled(uint64_t most) {
  if (most == 0) return 0;
  if (most == UINT32_MAX) return next32();
  if (most == UINT64_MAX) return next64();
  const uint64_t count = most + 1;
  if (most < UINT32_MAX) {
    uint64_t product = uint64_t{next32()} * count;
    if (static_cast<uint32_t>(product) < count) {
      const uint64_t threshold = (UINT32_MAX - most) % count;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next32()} * count;
    }
    return product >> 32;
  }
  Wide product = Wide{next64()} * count;
  if (static_cast<uint64_t>(product) < count) {
    const uint64_t threshold = (UINT64_MAX - most) % count;
    while (static_cast<uint64_t>(product) < threshold) product = Wide{next64()} * count;
  }
  return static_cast<uint64_t>(product >> 64);
}

/// Bits enough for `most`, until they make a number that is not above it.
uint64_t NumpyRandom::masked(uint64_t most) {
  const uint64_t mask = most == 0 ? 0 : UINT64_MAX >> std::countl_zero(most);
  while (most > 0) {
    const uint64_t value = (most > UINT32_MAX ? next64() : next32()) & mask;
    if (value <= most) return value;
  }
  return 0;
}

void NumpyRandom::shuffle(std::vector<int64_t>& numbers) {
  for (size_t i = numbers.size(); i-- > 1;) std::swap(numbers[i], numbers[masked(i)]);
}

void NumpyRandom::shuffle_scaled(std::vector<int64_t>& numbers, int64_t first) {
  for (auto i = static_cast<int64_t>(numbers.size()) - 1; i >= first; --i)
    std::swap(numbers[static_cast<size_t>(i)], numbers[scaled(static_cast<uint64_t>(i))]);
}

std::vector<int64_t> NumpyRandom::choice(int64_t population, int64_t count) {
  std::vector<int64_t> chosen;
  if (population > 10000 && count > population / 50) {
    chosen.resize(static_cast<size_t>(population));
    std::iota(chosen.begin(), chosen.end(), 0);
    shuffle_scaled(chosen, std::max<int64_t>(population - count, 1));
    return {chosen.end() - count, chosen.end()};
  }
  // Floyd's algorithm.
  std::vector<bool> taken(static_cast<size_t>(population));
  for (int64_t most = population - count; most < population; ++most) {
    auto number = static_cast<int64_t>(scaled(static_cast<uint64_t>(most)));
    if (taken[static_cast<size_t>(number)]) number = most;
    taken[static_cast<size_t>(number)] = true;
    chosen.push_back(number);
  }
  shuffle_scaled(chosen, 1);
  return chosen;
}

}  // namespace graft::adapters
