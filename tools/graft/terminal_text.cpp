#include "terminal_text.h"

#include <unistd.h>

namespace graft::cli {
namespace {

/// U+2400 and on: pictures of the control characters.
std::string picture_of(unsigned char control) {
  const auto last = static_cast<char>(0x80 | (control & 0x3f));
  return control == 0x7f ? "\u2421" : std::string("\xe2\x90") + last;
}

}  // namespace

std::string harmless(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      shown += picture_of(c);
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // C1: ESC and a letter in one
      shown += picture_of(0x1b);
      ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::string for_output(const std::string& text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  return is_terminal ? harmless(text) : text;
}

}  // namespace graft::cli
