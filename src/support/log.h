// Messages for the person who runs the program: standard error, one line each.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace graft {

void log_warning(std::string_view message);

/// What the compiler may report while it works; chosen by GRAFT_LOGS.
enum class LogTopic : uint8_t { graph, kernels, recompiles, guards, breaks, passes, cache, times };
/// UsageError if GRAFT_LOGS holds an unknown word.
bool logs(LogTopic topic);
void log(LogTopic topic, std::string_view message);
/// A warning that GRAFT_LOGS=-breaks, say, turns off.
void log_warning(LogTopic topic, std::string_view message);

/// Where messages go instead of standard error (tests, a host application's own log). An empty sink restores
/// the default.
void set_log_sink(std::function<void(std::string_view)> sink);

}  // namespace graft
