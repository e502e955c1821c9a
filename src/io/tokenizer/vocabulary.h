// Tokens and their ids, both ways.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace graft::io {
class Fields;

class Vocabulary {
 public:
  /// ConfigError when two tokens share an id.
  explicit Vocabulary(const std::vector<std::pair<std::string, int64_t>>& entries);
  /// From the object under "vocab".
  static Vocabulary from_fields(Fields& fields);

  std::optional<int64_t> id_of(std::string_view token) const;
  /// Null for an id without a token.
  const std::string* token_of(int64_t id) const;
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The ids of "<0x00>" to "<0xFF>" for the bytes of `text`; nothing unless all of them are there.
  std::optional<std::vector<int64_t>> byte_tokens(std::string_view text) const;

 private:
  std::unordered_map<int64_t, std::string> tokens_;
  std::unordered_map<std::string_view, int64_t> ids_;  // keys point into tokens_, whose nodes never move
};

}  // namespace graft::io
