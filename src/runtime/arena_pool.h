// Memory for the temporaries of programs, which need it only while they run: programs that run one after the
// other (forward and backward, one block after another, batches of other shapes) share it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.h"

namespace graft::runtime {

class ArenaPool {
 public:
  /// One for all programs of a device that there are; it goes with the last of them.
  static std::shared_ptr<ArenaPool> shared(const Device& device);
  explicit ArenaPool(const Device& device) : device_(device) {}

  /// At least so many bytes, from a multiple of the device's alignment on, until the object goes.
  class Loan {
   public:
    Loan(ArenaPool& pool, int64_t bytes);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    /// Null for no bytes.
    void* start() const;

   private:
    ArenaPool& pool_;
    at::Tensor memory_;
  };

 private:
  const Device& device_;
  std::mutex guard_;
  std::vector<at::Tensor> free_;
};

}  // namespace graft::runtime
