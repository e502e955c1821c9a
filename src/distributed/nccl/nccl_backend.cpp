#define USE_C10D_NCCL  // torch's own: its header is empty without it
#include "distributed/nccl_backend.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "graft/error.h"

namespace graft::dist {

c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int size, std::chrono::milliseconds timeout) {
  if (at::cuda::device_count() == 0) throw Error("[dist] torch sees no CUDA device on this machine");
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace graft::dist
