// How much memory there is, so that what cannot fit is refused before it is asked for.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace graft {

/// Bytes that are free or could be freed, of the machine's memory or of what this process's container may
/// have of it; none where the system does not say.
std::optional<int64_t> available_memory();

/// UsageError where `bytes` are more than that. (Asked for them, the system would give them, and end the
/// process once they are written.) `what` says who takes them, `advice` what to do: "a row takes", "lower
/// max_new_tokens".
void check_memory(double bytes, const std::string& what, const std::string& advice);

}  // namespace graft
