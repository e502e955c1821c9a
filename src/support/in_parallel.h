// Work that is made of independent pieces, on several threads: compiling kernels.
#pragma once
#include <cstddef>
#include <functional>

namespace graft {

/// Runs body(0) ... body(count - 1) on all cores, or on GRAFT_COMPILE_THREADS threads; the first exception
/// comes out.
void in_parallel(size_t count, const std::function<void(size_t)>& body);

}  // namespace graft
