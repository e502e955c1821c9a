// Numbers in messages: "1 token", "2 tokens".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace graft {

/// `noun` in the singular; its plural has an s.
inline std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace graft
