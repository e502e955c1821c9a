#include "io/format/quote.h"

#include <nlohmann/json.hpp>

namespace graft::io {

std::string quote(std::string_view text, size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  // A character cut in two, like any other byte that is not UTF-8, becomes U+FFFD.
  const nlohmann::json shown = std::string(text.substr(0, max_bytes));
  return shown.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + (cut ? "..." : "");
}

// Longer than PATH_MAX a path cannot be, so it is never cut.
std::string quote_path(const std::filesystem::path& path) {
  return quote(std::string_view(path.native()), 4096);
}

}  // namespace graft::io
