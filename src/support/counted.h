// Numbers in messages: "1 token", "2 tokens", "1e-05", "NaN".
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace graft {

/// `noun` in the singular; its plural has an s.
inline std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

/// Without the sign that a NaN may have.
inline std::string shown(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "infinity" : "-infinity";
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", value);
  return digits;
}

}  // namespace graft
