// A progress bar on standard error, only when a person watches.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace graft::cli {

/// A callback for (done, total) that draws "label [####    ] 42 %"; an empty function when standard error is
/// not a terminal.
std::function<void(int64_t, int64_t)> progress_bar(const std::string& label);

}  // namespace graft::cli
