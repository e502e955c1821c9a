#include "bench_compare.h"

#include <ATen/ATen.h>

#include "graft/safetensors.h"

namespace graft::cli::bench {
namespace {

double largest(const at::Tensor& values) {
  return values.numel() == 0 ? 0.0 : values.to(at::kDouble).abs().max().item<double>();
}

}  // namespace

std::string difference(const std::filesystem::path& got, const std::filesystem::path& wanted,
                       double tolerance) {
  const auto mine = SafetensorsFile::open(got), theirs = SafetensorsFile::open(wanted);
  // A gradient that is zero in theory is rounding noise in practice: its scale is at least a hundredth of the
  // largest gradient's.
  double floor = 0;
  for (const auto& name : theirs->names())
    if (name.starts_with("grad.")) floor = std::max(floor, largest(theirs->tensor(name)) / 100);
  for (const auto& name : mine->names())
    if (!theirs->contains(name)) return name + " has no counterpart";
  for (const auto& name : theirs->names()) {
    if (!mine->contains(name)) return name + " is missing";
    const auto a = mine->tensor(name), b = theirs->tensor(name);
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return name + " is of another kind";
    const double scale = std::max(largest(b), name.starts_with("grad.") ? floor : 0.0);
    const double apart = largest(a.to(at::kDouble) - b.to(at::kDouble));
    if (!(apart <= tolerance * scale))
      return name + " is off by " + std::to_string(apart) + " where the largest value is " +
             std::to_string(scale);
  }
  return {};
}

}  // namespace graft::cli::bench
