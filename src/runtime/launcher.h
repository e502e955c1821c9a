// A compiled kernel, as a target hands it to the runtime.
#pragma once
#include <memory>

namespace graft {

class Launcher {
 public:
  Launcher() = default;
  virtual ~Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Runs the kernel over its buffers, in the kernel's order. False if an index in the data was out of range.
  /// Threads may launch at once.
  virtual bool launch(void* const* buffers) const = 0;
};

}  // namespace graft
