// Iteration spaces of kernels: which shapes fit into one loop nest.
#pragma once
#include <optional>
#include <vector>

#include "codegen/kernel.h"

namespace graft::codegen {

using Space = std::vector<Dimension>;

int64_t points(const Space& space);
int64_t kept_points(const Space& space);

/// A space over a shape, with some dimensions reduced.
Space space_over(const std::vector<int64_t>& sizes, const std::vector<int64_t>& reduced = {});

/// The space cut so finely that every dimension of the shape is one or several of its dimensions; nothing
/// where the two do not nest ([2, 3] and [3, 2]). The shape is over all points, or over the kept ones only.
std::optional<Space> refine(const Space& space, const std::vector<int64_t>& sizes);
std::optional<Space> refine_kept(const Space& space, const std::vector<int64_t>& sizes);

/// Both cut to the finer of the two, with the reduced dimensions of both: nothing if they do not nest or
/// reduce different dimensions (a space that reduces none takes the other's).
std::optional<Space> unite(const Space& a, const Space& b);

/// Both cut to the finer of the two, with the dimensions that `a` reduces: nothing unless each dimension is
/// reduced by one of them and not by the other.
std::optional<Space> crossed(const Space& a, const Space& b);

}  // namespace graft::codegen
