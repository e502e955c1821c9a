// Messages for the person who runs the program: standard error, one line each.
#pragma once
#include <functional>
#include <string_view>

namespace graft {

void log_warning(std::string_view message);

/// Where warnings go instead of standard error (tests, a host application's own log). An empty sink restores
/// the default.
void set_log_sink(std::function<void(std::string_view)> sink);

}  // namespace graft
