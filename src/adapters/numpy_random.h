// numpy.random.default_rng(seed): the PCG64 generator, and what NumPy draws with it. PEFT's files of Uni-LoRA
// hold no indices; they are drawn again from their seed.
#pragma once
#include <cstdint>
#include <vector>

namespace graft::adapters {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  /// rng.choice(population, size=count, replace=False)
  std::vector<int64_t> choice(int64_t population, int64_t count);
  /// rng.shuffle(numbers)
  void shuffle(std::vector<int64_t>& numbers);

 private:
  __extension__ using Wide = unsigned __int128;

  uint64_t next64();
  uint32_t next32();
  /// From 0 to `most`, both of them possible. NumPy has two ways.
  uint64_t scaled(uint64_t most);
  uint64_t masked(uint64_t most);
  /// As choice() shuffles: only the places from `first` on.
  void shuffle_scaled(std::vector<int64_t>& numbers, int64_t first);

  Wide state_, increment_;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

}  // namespace graft::adapters
