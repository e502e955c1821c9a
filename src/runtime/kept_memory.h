// Memory of a result, used again once the caller has let it go: fresh pages cost more than the arithmetic on
// them.
#pragma once
#include <c10/core/Storage.h>

#include <cstdint>

#include "runtime/device.h"

namespace graft::runtime {

class KeptMemory {
 public:
  /// Of so many bytes: the memory of an earlier run, if nobody can reach it any more, or else fresh memory.
  c10::Storage take(int64_t bytes, const Device& device);
  void drop() { storage_.reset(); }

  /// Memory that was made elsewhere.
  void keep(c10::Storage storage);
  /// Nobody else can reach it any more, and it is as it was when it was kept.
  bool is_free(const Device& device) const;
  /// For somebody else.
  c10::Storage share() const { return c10::Storage(storage_); }
  bool is(const c10::Storage& storage) const { return storage_.get() == storage.unsafeGetStorageImpl(); }

 private:
  c10::intrusive_ptr<c10::StorageImpl> storage_;
  size_t bytes_ = 0;
  const void* data_ = nullptr;  // as it was made: a caller may free the memory by hand, or give it another
  const void* context_ = nullptr;
};

}  // namespace graft::runtime
