// Text that a model has made, as a terminal may be given it.
#pragma once
#include <string>
#include <string_view>

namespace graft::cli {

/// Characters that would command the terminal (colours, the title, the cursor, what was typed) are shown as
/// what they are: ESC as U+241B, others alike. Newlines and tabs stay. `text` is whole characters.
std::string harmless(std::string_view text);

/// What goes to standard output: harmless where that is a terminal, as it is elsewhere.
std::string for_output(const std::string& text);

}  // namespace graft::cli
