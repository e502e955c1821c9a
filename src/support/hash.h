// A 128-bit hash of bytes, the same on every machine: names of cache entries, and the check that one is
// whole. It finds accidents. It is no defence against somebody who makes collisions on purpose.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace graft {

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
};

/// Parts keep apart: {"ab", "c"} and {"a", "bc"} differ.
Hash128 hash128(std::initializer_list<std::string_view> parts);

/// 32 digits.
std::string hex(const Hash128& hash);

}  // namespace graft
