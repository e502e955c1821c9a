#include "runtime/fingerprint.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace graft::runtime {
namespace {

// Memory gives whole lines, and to find the page of one takes longer than to read it: samples are some lines
// of some pages.
constexpr int64_t kLine = 64, kLinesOfPage = 64, kLinesAtATime = 4;
// Pages. With twice as many at most, those of 42 weights took 1.2 % of a call of 120 ms on one core.
constexpr int64_t kFewest = 4, kMost = 32;
// What is small is near the core: all of it, or every second page.
constexpr int64_t kAllOf = 1 << 14, kSmall = 1 << 17;
// Seen with twice as many lines, on an idle machine: 26 us for 42 weights of 58 MB, which one core streams in
// 3.3 ms. Of what a call reads once that is less than a hundredth.
constexpr int64_t kBytesPerPage = 1 << 18;
constexpr int64_t kAhead = 2048;  // asked for before it is read: 73 MB take 8.5 ms then, and 11.3 otherwise
constexpr int64_t kBytesOfThread = 1 << 18;  // to hash fewer is over before another thread has begun
constexpr int64_t kUsesPerRead = 4;          // arithmetic that takes as long as reading from memory

int64_t pages_for(int64_t bytes, int64_t uses) {
  if (bytes <= kAllOf) return 0;  // all
  if (bytes <= kSmall) return kSmall / (2 * kLine * kLinesOfPage);
  return std::clamp(bytes / kBytesPerPage * std::max<int64_t>(1, uses / kUsesPerRead), kFewest, kMost);
}

/// Both halves of the product: no bit of either is without effect, as the highest would be in one half.
uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kKeys[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x589965cc75374cc3,
                              0x1d8e4e27c47d124f, 0xeb44accab455d165, 0x9fb21c651e98df25, 0xc2b2ae3d27d4eb4f};

uint64_t word(const char* at) {
  uint64_t x = 0;
  std::memcpy(&x, at, sizeof x);
  return x;
}

/// Four chains at once: one would wait for its products.
class Hasher {
 public:
  void add(const char* at, int64_t bytes) {
    int64_t done = 0;
    for (; done + kLine <= bytes; done += kLine) {
      if (done + kAhead < bytes) __builtin_prefetch(at + done + kAhead);
      take(at + done);
    }
    if (done == bytes) return;
    char rest[kLine] = {};
    std::memcpy(rest, at + done, static_cast<size_t>(bytes - done));
    take(rest);
    lanes_[0] ^= static_cast<uint64_t>(bytes - done);
  }

  uint64_t finish() const {
    return fold(fold(lanes_[0] ^ kKeys[7], lanes_[1]) ^ kKeys[2], fold(lanes_[2] ^ kKeys[3], lanes_[3]));
  }

 private:
  void take(const char* line) {
    for (size_t i = 0; i < 4; ++i)
      lanes_[i] = fold(word(line + 16 * i) ^ kKeys[i], word(line + 16 * i + 8) ^ lanes_[i]);
  }
  uint64_t lanes_[4] = {kKeys[0], kKeys[4], kKeys[5], kKeys[6]};
};

/// Some number below `bound` for each `n`, the same every time.
int64_t scattered(int64_t n, int64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t x = fold(static_cast<uint64_t>(n) + kKeys[0], kKeys[1]);
  return static_cast<int64_t>((static_cast<Wide>(x) * static_cast<uint64_t>(bound)) >> 64);
}

}  // namespace

Fingerprint::Fingerprint(const at::Tensor& tensor, const Effort& effort) {
  const int64_t element = static_cast<int64_t>(tensor.element_size());
  std::vector<Outer> dims;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) != 1 && tensor.stride(d) != 0)
      dims.push_back({tensor.stride(d) * element, tensor.size(d)});
  std::sort(dims.begin(), dims.end(), [](const Outer& a, const Outer& b) { return a.bytes > b.bytes; });
  run_ = tensor.numel() == 0 ? 0 : element;
  while (!dims.empty() && dims.back().bytes == run_) {
    run_ *= dims.back().count;
    dims.pop_back();
  }
  outer_ = std::move(dims);
  total_ = run_;
  for (const auto& dim : outer_) total_ *= dim.count;

  pages_ = pages_for(total_, effort.uses);
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  sampled_ = hash_samples(data);
  if (effort.part_bytes == 0) return;
  part_bytes_ = (std::max<int64_t>(effort.part_bytes, kLine) + kLine - 1) / kLine * kLine;
  parts_.resize(static_cast<size_t>((total_ + part_bytes_ - 1) / part_bytes_));
  const int64_t parts_of_thread = std::max<int64_t>(kBytesOfThread / part_bytes_, 1);
  at::parallel_for(0, static_cast<int64_t>(parts_.size()), parts_of_thread, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      parts_[static_cast<size_t>(part)] = hash_part(data, static_cast<size_t>(part));
  });
}

const char* Fingerprint::address(const char* data, int64_t place) const {
  if (outer_.empty()) return data + place;
  int64_t number = place / run_;
  data += place % run_;
  for (size_t i = outer_.size(); i-- > 0;) {
    data += number % outer_[i].count * outer_[i].bytes;
    number /= outer_[i].count;
  }
  return data;
}

/// What is done with `data` from the one place to the other, run by run.
template <class Add>
void Fingerprint::each_run(const char* data, int64_t begin, int64_t end, Add add) const {
  while (begin < end) {
    const int64_t bytes = outer_.empty() ? end - begin : std::min(run_ - begin % run_, end - begin);
    add(address(data, begin), bytes);
    begin += bytes;
  }
}

uint64_t Fingerprint::hash_part(const char* data, size_t part) const {
  const int64_t begin = static_cast<int64_t>(part) * part_bytes_;
  Hasher hash;
  each_run(data, begin, std::min(begin + part_bytes_, total_),
           [&](const char* at, int64_t bytes) { hash.add(at, bytes); });
  return hash.finish();
}

/// A few lines of one page of each of as many stretches, at other places in each: a row, a column or a block
/// of a matrix that has changed meets some of them. The first line and the last are always among them.
uint64_t Fingerprint::hash_samples(const char* data) const {
  Hasher hash;
  const auto add = [&](const char* at, int64_t bytes) { hash.add(at, bytes); };
  if (pages_ == 0) {
    each_run(data, 0, total_, add);
    return hash.finish();
  }
  const int64_t lines = (total_ + kLine - 1) / kLine;
  // All are asked for before the first is read: memory answers many as fast as one.
  std::array<int64_t, kMost * kLinesAtATime> places;
  size_t count = 0;
  const auto ask_for = [&](int64_t line) {
    places[count++] = line * kLine;
    __builtin_prefetch(address(data, line * kLine));
  };
  for (int64_t page = 0; page < pages_; ++page) {
    int64_t first = lines * page / pages_, next = lines * (page + 1) / pages_;
    if (next - first > kLinesOfPage) {
      first += scattered(page, (next - first) / kLinesOfPage) * kLinesOfPage;
      next = first + kLinesOfPage;
    }
    for (int64_t n = 0; n < kLinesAtATime; ++n) {
      const int64_t from = first + (next - first) * n / kLinesAtATime,
                    to = first + (next - first) * (n + 1) / kLinesAtATime;
      const bool is_first = page == 0 && n == 0, is_last = page == pages_ - 1 && n == kLinesAtATime - 1;
      ask_for(is_first  ? 0
              : is_last ? lines - 1
                        : from + scattered(kLinesAtATime * page + n, std::max<int64_t>(to - from, 1)));
    }
  }
  for (size_t n = 0; n < count; ++n) each_run(data, places[n], std::min(places[n] + kLine, total_), add);
  return hash.finish();
}

bool Fingerprint::samples_agree(const at::Tensor& tensor) const {
  return hash_samples(static_cast<const char*>(tensor.const_data_ptr())) == sampled_;
}

bool Fingerprint::part_agrees(const at::Tensor& tensor, size_t part) const {
  return hash_part(static_cast<const char*>(tensor.const_data_ptr()), part) == parts_[part];
}

}  // namespace graft::runtime
