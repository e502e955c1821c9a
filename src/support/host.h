// What this machine has, where code depends on it.
#pragma once
#include <cstdint>

namespace graft {

/// An Arm processor of 64 bits whose vectors are NEON's.
bool is_arm_without_sve();

/// In bytes; without swap.
int64_t memory_of_machine();

}  // namespace graft
