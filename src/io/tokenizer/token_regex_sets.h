// Characters that a Unicode 14 table (PCRE2 10.42's) lacks or has in another place, by general category, up
// to Unicode 16. An engine with newer tables has them already; then they are named twice, which changes
// nothing.
#pragma once
#include <string>
#include <string_view>

namespace graft::io {

/// As ranges for a PCRE2 character class; for a group ("L") those of all its members. Empty where nothing is
/// missing, or the name is no category.
std::string younger_characters(std::string_view category);

}  // namespace graft::io
