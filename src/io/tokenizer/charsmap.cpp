#include "io/tokenizer/charsmap.h"

#include "graft/error.h"
#include "io/format/utf8.h"

namespace graft::io {
namespace {

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// The fields of a unit.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & (0x80000000U | 0xFFU); }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFU; }
size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200U) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& label) {
  if (bytes.empty()) return;
  const auto fail = [&](const char* what) {
    throw FormatError("[sentencepiece] " + label + ": its map of characters " + what);
  };
  if (bytes.size() < 4) fail("is cut off");
  const size_t size = read_u32(bytes, 0);
  if (size > bytes.size() - 4 || size == 0 || size % 4 != 0) fail("has a trie of the wrong size");
  units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(read_u32(bytes, at));
  replacements_ = bytes.substr(4 + size);
  if (replacements_.empty() || replacements_.back() != '\0') fail("has replacements without an end");
  if (find_invalid_utf8(replacements_) != std::string::npos) fail("has replacements that are not UTF-8");
}

std::optional<std::pair<size_t, std::string_view>> Charsmap::find(std::string_view text, size_t pos) const {
  if (units_.empty()) return {};
  std::optional<std::pair<size_t, std::string_view>> longest;
  size_t node = offset_of(units_[0]);
  for (size_t at = pos; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t start = value_of(units_[node]);
    if (start >= replacements_.size()) break;
    const size_t end = replacements_.find('\0', start);
    // A trie from a stranger may point into the middle of a character.
    const std::string_view replacement(replacements_.data() + start, end - start);
    if (find_invalid_utf8(replacement) != std::string_view::npos) break;
    longest.emplace(at + 1 - pos, replacement);
  }
  return longest;
}

}  // namespace graft::io
