// The twin of an operator that changes its arguments: one that gives the new values instead.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

namespace graft {

/// add_.Tensor(self!, other) -> add.Tensor(self, other); add.out(self, other, out!) -> add.Tensor(self,
/// other).
struct FunctionalForm {
  c10::OperatorHandle op;
  std::vector<size_t> mutated;  ///< arguments of the original that it writes to, results first
  size_t fresh =
      0;  ///< results that come first and are new in the original, too; then one for each of `mutated`
};

/// Nothing where torch has no such twin.
std::optional<FunctionalForm> functional_form(const c10::OperatorHandle& op);

}  // namespace graft
