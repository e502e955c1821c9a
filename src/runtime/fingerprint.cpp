#include "runtime/fingerprint.h"

#include <algorithm>
#include <cstring>

namespace graft::runtime {
namespace {

constexpr int64_t kLine = 64;  // bytes that memory gives at a time: a sample is as dear as one byte of it
constexpr int64_t kFewest = 32, kMost = 512;  // samples
// One sample takes about as long as streaming 200 bytes: of what a call reads once, less than a hundredth.
constexpr int64_t kBytesPerSample = 32768;
constexpr int64_t kUsesPerRead = 8;  // arithmetic that takes as long as reading from memory

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
uint64_t hash_bytes(const char* at, int64_t bytes, uint64_t seed) {
  uint64_t lanes[4] = {seed, seed ^ kKeys[4], seed ^ kKeys[5], seed ^ kKeys[6]};
  const auto take = [&](const char* line) {
    for (int i = 0; i < 4; ++i)
      lanes[i] = fold(word(line + 16 * i) ^ kKeys[i], word(line + 16 * i + 8) ^ lanes[i]);
  };
  int64_t done = 0;
  for (; done + kLine <= bytes; done += kLine) take(at + done);
  if (done < bytes) {
    char rest[kLine] = {};
    std::memcpy(rest, at + done, static_cast<size_t>(bytes - done));
    take(rest);
  }
  return fold(fold(lanes[0] ^ kKeys[7], lanes[1]) ^ kKeys[2],
              fold(lanes[2] ^ kKeys[3], lanes[3]) ^ static_cast<uint64_t>(bytes));
}

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

  const int64_t wanted = total_ / kBytesPerSample * std::max<int64_t>(1, effort.uses / kUsesPerRead);
  samples_ = std::min(std::clamp(wanted, kFewest, kMost), (total_ + kLine - 1) / kLine);
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  sampled_ = hash_samples(data);
  part_bytes_ = (std::max<int64_t>(effort.part_bytes, kLine) + kLine - 1) / kLine * kLine;
  parts_.resize(static_cast<size_t>((total_ + part_bytes_ - 1) / part_bytes_));
  for (size_t part = 0; part < parts_.size(); ++part) parts_[part] = hash_part(data, part);
}

uint64_t Fingerprint::hash_range(const char* data, int64_t begin, int64_t end) const {
  if (outer_.empty()) return hash_bytes(data + begin, end - begin, kKeys[0]);
  uint64_t hash = kKeys[0];
  while (begin < end) {
    int64_t number = begin / run_;
    const int64_t inside = begin % run_, bytes = std::min(run_ - inside, end - begin);
    const char* at = data + inside;
    for (size_t i = outer_.size(); i-- > 0;) {
      at += number % outer_[i].count * outer_[i].bytes;
      number /= outer_[i].count;
    }
    hash = hash_bytes(at, bytes, hash);
    begin += bytes;
  }
  return hash;
}

uint64_t Fingerprint::hash_part(const char* data, size_t part) const {
  const int64_t begin = static_cast<int64_t>(part) * part_bytes_;
  return hash_range(data, begin, std::min(begin + part_bytes_, total_));
}

/// One line of each of as many stretches, at another place in each: a row, a column or a block of a matrix
/// that has changed meets some of them. The first line and the last are always among them.
uint64_t Fingerprint::hash_samples(const char* data) const {
  const int64_t lines = (total_ + kLine - 1) / kLine;
  uint64_t hash = kKeys[7];
  for (int64_t n = 0; n < samples_; ++n) {
    const int64_t first = lines * n / samples_, next = lines * (n + 1) / samples_;
    const int64_t line = n == 0 ? 0 : n == samples_ - 1 ? lines - 1 : first + scattered(n, next - first);
    hash = fold(hash ^ kKeys[1],
                hash_range(data, line * kLine, std::min((line + 1) * kLine, total_)) ^ kKeys[2]);
  }
  return hash;
}

bool Fingerprint::samples_agree(const at::Tensor& tensor) const {
  return hash_samples(static_cast<const char*>(tensor.const_data_ptr())) == sampled_;
}

bool Fingerprint::part_agrees(const at::Tensor& tensor, size_t part) const {
  return hash_part(static_cast<const char*>(tensor.const_data_ptr()), part) == parts_[part];
}

}  // namespace graft::runtime
