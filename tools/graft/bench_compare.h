// Whether two contenders computed the same.
#pragma once
#include <filesystem>
#include <string>

namespace graft::cli::bench {

/// Empty when both files hold the same tensors within `tolerance` of their largest values; else the first
/// difference in words.
std::string difference(const std::filesystem::path& got, const std::filesystem::path& wanted,
                       double tolerance);

}  // namespace graft::cli::bench
