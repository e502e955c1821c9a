// The processes that work on one run together: torch's c10d underneath, with Gloo for tensors on the CPU and
// NCCL for those on GPUs.
//
//   auto group = graft::ProcessGroup::connect();   // as torchrun, Slurm or `graft launch` set RANK,
//   WORLD_SIZE, ... auto loss = at::scalar_tensor(1.0); group->all_reduce(loss);                       // the
//   sum over all processes, on each of them
//
// A process that dies or hangs is an error on all the others that names its rank, within `peer_timeout`; so
// is an error on any of them that reaches fail(). None of them waits for ever.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graft {

struct ProcessGroupOptions {
  int rank = 0, size = 1;
  int local_rank = 0;  ///< among the processes of this machine
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 29500;
  std::chrono::seconds timeout{1800};     ///< of one call; transformers' ddp_timeout
  std::chrono::seconds peer_timeout{30};  ///< without a sign of life a process is taken for dead

  /// RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; GRAFT_PEER_TIMEOUT. One process where
  /// WORLD_SIZE is not set. UsageError for what makes no sense.
  static ProcessGroupOptions from_environment();
};

class ProcessGroup {
 public:
  /// Waits for the others. A group of one needs nothing and does nothing.
  static std::shared_ptr<ProcessGroup> connect(
      const ProcessGroupOptions& options = ProcessGroupOptions::from_environment());
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_main() const { return rank() == 0; }

  // All processes must make the same calls in the same order, with tensors of the same shape and dtype.
  /// The sum over all processes, in place.
  virtual void all_reduce(const at::Tensor& tensor) = 0;
  /// The values of process `from`, in place.
  virtual void broadcast(const at::Tensor& tensor, int from) = 0;
  /// Everybody's tensor, by rank.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;
  virtual void barrier() = 0;

  /// Tells the others why this process gives up; their calls, also those they wait in, then throw that.
  virtual void fail(const std::string& why) = 0;
};

/// The named tensors of process `from`, on all; the others need not know names and shapes.
std::vector<std::pair<std::string, at::Tensor>> broadcast_named(
    ProcessGroup& group, const std::vector<std::pair<std::string, at::Tensor>>& tensors, int from);

}  // namespace graft
