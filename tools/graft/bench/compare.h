// Whether two contenders computed the same.
#pragma once
#include <filesystem>
#include <string>

namespace graft::cli::bench {

/// Empty when both files hold the same tensors within `tolerance` of their largest values; else the first
/// difference in words. Gradients may lie apart by a few times the `noise` too.
std::string difference(const std::filesystem::path& got, const std::filesystem::path& wanted,
                       double tolerance, double noise);

/// The largest distance between gradients of the same name, in shares of the gradient's largest value.
double gradient_distance(const std::filesystem::path& got, const std::filesystem::path& wanted);

}  // namespace graft::cli::bench
