// How the points of a kernel are distributed over threads.
//
// A block has `points` points at a time, and `lanes` threads for each of them, which share its reduced points
// and put together what they found. A thread takes `width` neighbours at once, along one loop variable:
// points where each has one lane, reduced points otherwise.
#pragma once
#include <cstdint>

#include "codegen/kernel.h"

namespace graft::cuda {

struct Layout {
  int points = 256, lanes = 1;
  /// Neighbouring threads are lanes of one point: a row lies in memory along what is reduced. Else they are
  /// points: a column.
  bool rows = true;
  int width = 1;
  int vector_dim = -1;  ///< the loop variable that `width` is along
  /// So many steps of all lanes are a whole row, which is held in registers from phase to phase; 0 where it
  /// is too long for that.
  int held_steps = 0;
  bool narrow = true;  ///< all places fit into 32 bits

  int threads() const { return points * lanes; }
};

Layout layout_of(const codegen::Kernel& kernel);

/// Whether neighbours along a loop variable are neighbours in memory.
bool steps_by_one(const codegen::Index& index, int variable);

}  // namespace graft::cuda
