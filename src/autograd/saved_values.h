// Decides what the forward saves for the backward, as a minimum cut.
//
// Every call is a vertex, and every value is one. Behind the cut, on the sink's side, a call means "runs in
// the backward", a value means "is at hand in the backward". Edges say what a choice costs:
//
//   call  -> its value   the value's bytes     the call runs only in the forward: the value is saved
//   call  -> a result    1/32 of its bytes     that the backward's own calls read: the caller has it, too
//   value -> its user    unlimited             what runs in the backward needs its arguments there
//   call  -> sink        unlimited             depends on a tangent: runs in the backward
//   source -> call       unlimited             too expensive or random: is not run again
//   source -> call       1/16 of its bytes     runs again; so that no long chain is, to save little
//   source -> input      nothing, or its bytes if it is mutated
//
// A view is never saved (its edge is unlimited), so the base is; views and creations run again for nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/partition.h"

namespace graft::autograd {

struct SavedValues {
  /// In the order of the joint graph. A mutated input is here, any other input is not.
  std::vector<const ir::Value*> saved;
  /// By the call's place in the joint graph: runs in the backward, perhaps again.
  std::vector<bool> in_backward;
  /// Depends on a tangent, or is not cheap and stands where the backward does: keeps its order.
  std::vector<bool> only_backward;
};

/// REQUIRES: indices that exist.
SavedValues choose_saved_values(const ir::Graph& joint, size_t forward_results,
                                const std::vector<size_t>& tangent_inputs, const PartitionOptions& options);

}  // namespace graft::autograd
