// What the processes send each other tensors on GPUs by.
#pragma once
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace graft::dist {

/// torch's NCCL backend, for all processes to ask for. Error in a build without it, or without a GPU.
c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int size, std::chrono::milliseconds timeout);

}  // namespace graft::dist
