// Stands in for src/distributed/nccl/ where torch has no NCCL, or its headers are not there.
#include "distributed/nccl_backend.h"

#include "graft/error.h"

namespace graft::dist {

c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                               std::chrono::milliseconds) {
  throw Error(
      "[dist] several processes have tensors on GPUs, and this graft was built without NCCL: build it with a "
      "torch that has CUDA, and NCCL's header");
}

}  // namespace graft::dist
