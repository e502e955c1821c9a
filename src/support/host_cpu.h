// What this machine's processor has, where code depends on it.
#pragma once

namespace graft {

/// An Arm processor of 64 bits whose vectors are NEON's.
bool is_arm_without_sve();

}  // namespace graft
