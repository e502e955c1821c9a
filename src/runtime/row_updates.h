// Updates of rows of several tensors, which a device can do by one launch.
#pragma once
#include <vector>

#include "runtime/action.h"
#include "runtime/work.h"

namespace graft::runtime {

/// Whether both write to the same places, and neither reads what the other writes, by whatever view.
bool can_be_done_at_once(const std::vector<Slot>& slots, const RowUpdateWork::Slots& a,
                         const RowUpdateWork::Slots& b);

}  // namespace graft::runtime
