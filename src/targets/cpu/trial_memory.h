// Buffers for a kernel's trial: of their full sizes, but only what is touched takes memory; with made-up
// contents.
#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "codegen/evaluate.h"
#include "codegen/kernel.h"

namespace graft::cpu {

/// Of address space, zero until written to.
class LazyMemory {
 public:
  /// Null where the system refuses.
  explicit LazyMemory(size_t bytes);
  ~LazyMemory();
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

/// What an element holds depends on its buffer, its number and the round, so that it is the same whenever it
/// is asked for; it is written into memory then. In the course of 16 rounds every element is an ordinary
/// number of either sign, zero of either sign, a denormal, a large one, a constant of the kernel; every third
/// round has NaN, infinities and the largest among them, few enough that reductions have others too. Whole
/// numbers that say where something lies are in range.
class TrialMemory : public codegen::Elements {
 public:
  /// `together`: the elements of each buffer that go into one result, about.
  TrialMemory(const codegen::Kernel& kernel, int64_t together);

  bool available() const { return memory_.data() != nullptr; }
  void* const* buffers() const { return starts_.data(); }
  /// The elements of a buffer that may be touched: from the first to before the second.
  std::pair<int64_t, int64_t> extent(int buffer) const {
    const auto& place = places_[static_cast<size_t>(buffer)];
    return {place.first, place.end};
  }

  /// No value that says where something lies is above `largest_index`.
  void start_round(int round, int64_t largest_index);
  double number(int buffer, int64_t element) override;
  int64_t integer(int buffer, int64_t element) override;
  bool has(int buffer, int64_t element) const override;

  /// As stored; a half type widened.
  double stored_number(int buffer, int64_t element) const;
  int64_t stored_integer(int buffer, int64_t element) const;
  /// Overwrites an element that is to be stored, so that a store that does not happen is seen.
  void spoil(int buffer, int64_t element);
  /// Whether the memory around the buffers that are written is as it was; else the number of such a buffer.
  int overrun() const;

 private:
  struct Place {
    ir::DType dtype;
    int64_t first, end;       // elements that may be touched
    int64_t offset;           // of element 0, in bytes
    int64_t index_below = 0;  // values are indices below this; 0: they are none
    bool index_wraps = false;
    bool written = false;
  };
  static std::vector<Place> layout(const codegen::Kernel& kernel, size_t& bytes);
  /// That its value is made from; of all buffers the same in a round where comparisons meet equals.
  uint64_t bits_of(int buffer, int64_t element) const;
  std::byte* address(int buffer, int64_t element) const;

  size_t bytes_ = 0;
  std::vector<Place> places_;
  LazyMemory memory_;
  std::vector<void*> starts_;
  int round_ = 0;
  int64_t largest_index_ = 0;
  std::vector<double> constants_;
  uint64_t one_in_;  // so many elements is special, in a round that has such
};

}  // namespace graft::cpu
