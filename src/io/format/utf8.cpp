#include "io/format/utf8.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::io {
namespace {

unsigned char byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// How many bytes a character with this first byte has; 0 if none starts so.
size_t length_by_lead(unsigned char lead) {
  return lead < 0x80                    ? 1
         : lead >= 0xC2 && lead <= 0xDF ? 2
         : (lead & 0xF0) == 0xE0        ? 3
         : lead >= 0xF0 && lead <= 0xF4 ? 4
                                        : 0;
}

// Whether the bytes after the first, as many as there are of `length`, fit it (Unicode 15, table 3-7).
bool rest_fits(std::string_view text, size_t i, size_t length) {
  const unsigned char lead = byte_at(text, i);
  if (length > 1) {
    const unsigned char second = byte_at(text, i + 1);
    const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;  // below: an overlong form
    const unsigned char most = lead == 0xED   ? 0x9F
                               : lead == 0xF4 ? 0x8F
                                              : 0xBF;  // above: a surrogate, or past U+10FFFF
    if (second < least || second > most) return false;
  }
  for (size_t k = 2; k < length; ++k)
    if ((byte_at(text, i + k) & 0xC0) != 0x80) return false;
  return true;
}

// The length of the well-formed sequence at `i`, 0 if there is none.
size_t sequence_length(std::string_view text, size_t i) {
  const size_t length = length_by_lead(byte_at(text, i));
  return length > 0 && i + length <= text.size() && rest_fits(text, i, length) ? length : 0;
}

}  // namespace

bool starts_character(std::string_view bytes) {
  return bytes.size() <= length_by_lead(byte_at(bytes, 0)) && rest_fits(bytes, 0, bytes.size());
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = sequence_length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

void check_utf8(std::string_view text, std::string_view what) {
  const size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos)
    throw FormatError("[tokenizer] " + std::string(what) + " is not valid UTF-8 at byte " +
                      std::to_string(bad));
}

char32_t next_code_point(std::string_view text, size_t& pos) {
  const unsigned char lead = byte_at(text, pos++);
  if (lead < 0x80) return lead;
  const int following = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t c = lead & (0x3F >> following);
  for (int k = 0; k < following; ++k) c = c << 6 | (byte_at(text, pos++) & 0x3F);
  return c;
}

size_t previous_code_point(std::string_view text, size_t pos) {
  do --pos;
  while ((byte_at(text, pos) & 0xC0) == 0x80);
  return pos;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

size_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty()) {
    const size_t start = previous_code_point(text, text.size());
    size_t pos = start;
    if (!is_white_space(next_code_point(text, pos))) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace graft::io
