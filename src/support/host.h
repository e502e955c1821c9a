// What this machine has, where code depends on it.
#pragma once
#include <cstdint>
#include <string>

namespace graft {

/// What tells this kind of processor from others, as the system describes it.
const std::string& cpu_name();

/// An Arm processor of 64 bits whose vectors are NEON's.
bool is_arm_without_sve();

/// Whether ATen has fast products of these dtypes here: libraries that use the instructions for them, or
/// convert blocks on the way.
bool has_bfloat16_products();
bool has_float16_products();

/// In bytes; without swap.
int64_t memory_of_machine();

}  // namespace graft
