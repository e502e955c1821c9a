#include "support/hash.h"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace graft {

Hash128 hash128(std::initializer_list<std::string_view> parts) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const auto part : parts) {
    unsigned char length[8];
    for (size_t i = 0; i < sizeof length; ++i) length[i] = static_cast<unsigned char>(part.size() >> (8 * i));
    XXH3_128bits_update(&state, length, sizeof length);
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  const auto digest = XXH3_128bits_digest(&state);
  return {digest.high64, digest.low64};
}

std::string hex(const Hash128& hash) {
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return digits;
}

}  // namespace graft
