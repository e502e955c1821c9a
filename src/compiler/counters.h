// The counters behind graft::counters().
#pragma once
#include <functional>

#include "graft/compile.h"

namespace graft {

void count(const std::function<void(Counters&)>& change);
/// Grows with every reset(): programs made before are not used any more.
uint64_t reset_generation();

}  // namespace graft
