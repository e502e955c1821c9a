// A compiled kernel, as a target hands it to the runtime.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace graft {

/// One launch of a kernel, and the run that it is part of.
struct Launch {
  void* const* buffers;                 ///< in the kernel's order; kernel after kernel
  int32_t* failed;                      ///< gets `mark` where an index in the data is out of range
  int32_t mark = 1;                     ///< never 0
  bool unless_failed = false;           ///< it does nothing if there is a mark already
  void* stream = nullptr;               ///< that the kernel is queued on, where the device has such
  std::span<const int64_t> sizes = {};  ///< of the dimensions that differ from run to run
};

class Launcher {
 public:
  Launcher() = default;
  virtual ~Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Threads may launch at once.
  virtual void launch(const Launch& launch) const = 0;
};

struct CompiledKernels {
  /// One for each kernel of the schedule, in its order; null for those that are launched with the one before.
  std::vector<std::shared_ptr<const Launcher>> launchers;
  int64_t unique = 0;
  int64_t cache_hits = 0;
};

}  // namespace graft
