// Which dimensions may be walked at a few of their positions (evaluate.h).
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "codegen/evaluate.h"

namespace graft::codegen {
namespace {

/// No two points of the dimensions that it uses have one value.
bool tells_points_apart(const Kernel& kernel, const Index& index) {
  if (!index.is_affine()) return false;
  std::vector<std::pair<int64_t, int64_t>> steps;  // size, extent
  for (size_t d = 0; d < kernel.dims.size(); ++d)
    if (const int64_t step = std::abs(index.coefficient(static_cast<int>(d))))
      steps.emplace_back(step, kernel.dims[d].extent);
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [step, extent] : steps) {
    if (step <= reach) return false;
    reach += step * (extent - 1);
  }
  return true;
}

/// Whether an iota serves only to say where the largest is: of equals the first counts, which is the one that
/// stands for all.
bool is_place_only(const Kernel& kernel, int n) {
  return std::all_of(kernel.code.begin(), kernel.code.end(), [&](const Instruction& i) {
    const bool uses =
        std::find(i.args.begin(), i.args.end(), n) != i.args.end() || i.guard == n ||
        std::any_of(i.indirect.begin(), i.indirect.end(), [&](const auto& x) { return x.value == n; });
    return !uses || (is_reduction(i.op) && i.args.size() == 2 && i.args[1] == n && i.args[0] != n);
  });
}

}  // namespace

bool can_be_thinned(const Kernel& kernel, int dim) {
  for (size_t n = 0; n < kernel.code.size(); ++n) {
    const auto& i = kernel.code[n];
    if (!i.indirect.empty() || i.adds || is_scan(i.op)) return false;
    if (i.op == Op::iota && i.index.uses(dim) && !is_place_only(kernel, static_cast<int>(n))) return false;
    if (i.op != Op::load || !i.index.uses(dim)) continue;
    if (!tells_points_apart(kernel, i.index)) return false;
    // Read in two ways, an element may be one of the rest here and not there.
    for (const auto& other : kernel.code)
      if (other.op == Op::load && other.buffer == i.buffer && !(other.index == i.index)) return false;
  }
  return true;
}

}  // namespace graft::codegen
