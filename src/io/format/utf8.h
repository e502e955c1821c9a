// UTF-8, read and written one code point at a time, and the one Unicode property that is small and frozen
// enough to be written down.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace graft::io {

/// The offset of the first byte that is not part of well-formed UTF-8 (overlong forms and surrogates are
/// not), or npos.
size_t find_invalid_utf8(std::string_view text);
/// Whether more bytes could make these one character. REQUIRES: not empty.
bool starts_character(std::string_view bytes);
/// Throws FormatError with that offset. `what` names the text: "the text to encode".
void check_utf8(std::string_view text, std::string_view what);

/// The code point at `pos`, which moves past it. REQUIRES: valid UTF-8, pos at the start of a code point and
/// inside the text.
char32_t next_code_point(std::string_view text, size_t& pos);
/// Where the code point that ends at `pos` starts. REQUIRES: valid UTF-8, 0 < pos <= text.size().
size_t previous_code_point(std::string_view text, size_t pos);
void append_utf8(std::string& out, char32_t code_point);
size_t count_code_points(std::string_view text);

/// Unicode's White_Space: what Rust's char::is_whitespace and a regex's \s accept. The same set since
/// Unicode 6.3.
bool is_white_space(char32_t c);
std::string_view trim_end(std::string_view text);

}  // namespace graft::io
