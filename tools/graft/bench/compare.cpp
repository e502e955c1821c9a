#include "bench/compare.h"

#include <ATen/ATen.h>

#include "graft/safetensors.h"

namespace graft::cli::bench {
namespace {

double largest(const at::Tensor& values) {
  return values.numel() == 0 ? 0.0 : values.to(at::kDouble).abs().max().item<double>();
}

bool is_gradient(const std::string& name) { return name.starts_with("grad."); }

/// A gradient that is zero in theory is rounding noise in practice: its scale is at least a hundredth of the
/// largest gradient's.
double smallest_scale(const SafetensorsFile& file) {
  double floor = 0;
  for (const auto& name : file.names())
    if (is_gradient(name)) floor = std::max(floor, largest(file.tensor(name)) / 100);
  return floor;
}

}  // namespace

double gradient_distance(const std::filesystem::path& got, const std::filesystem::path& wanted) {
  const auto mine = SafetensorsFile::open(got), theirs = SafetensorsFile::open(wanted);
  const double floor = smallest_scale(*theirs);
  double found = 0;
  for (const auto& name : theirs->names()) {
    if (!is_gradient(name) || !mine->contains(name)) continue;
    const auto a = mine->tensor(name), b = theirs->tensor(name);
    const double scale = std::max(largest(b), floor);
    if (scale > 0) found = std::max(found, largest(a.to(at::kDouble) - b.to(at::kDouble)) / scale);
  }
  return found;
}

std::string difference(const std::filesystem::path& got, const std::filesystem::path& wanted,
                       double tolerance, double noise) {
  const auto mine = SafetensorsFile::open(got), theirs = SafetensorsFile::open(wanted);
  const double floor = smallest_scale(*theirs);
  for (const auto& name : mine->names())
    if (!theirs->contains(name)) return name + " has no counterpart";
  for (const auto& name : theirs->names()) {
    if (!mine->contains(name)) return name + " is missing";
    const auto a = mine->tensor(name), b = theirs->tensor(name);
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return name + " is of another kind";
    const double scale = std::max(largest(b), is_gradient(name) ? floor : 0.0);
    const double apart = largest(a.to(at::kDouble) - b.to(at::kDouble));
    const double allowed = is_gradient(name) ? std::max(tolerance, 4 * noise) : tolerance;
    if (!(apart <= allowed * scale))
      return name + " is off by " + std::to_string(apart) + " where the largest value is " +
             std::to_string(scale);
  }
  return {};
}

}  // namespace graft::cli::bench
