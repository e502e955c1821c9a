// SentencePiece's compiled map of characters: a double-array trie (darts) from texts to offsets into a block
// of replacements, each ended by a NUL.
//
//   u32 size of the trie, the trie: u32 units, the replacements
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graft::io {

class Charsmap {
 public:
  /// An empty one maps nothing. FormatError for a map that is cut off.
  Charsmap(std::string_view bytes, const std::string& label);

  /// The longest text of the map that starts at `pos`: its length and what replaces it.
  std::optional<std::pair<size_t, std::string_view>> find(std::string_view text, size_t pos) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace graft::io
