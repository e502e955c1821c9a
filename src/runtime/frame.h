// The tensors of one run of a program, and what its work asks for.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/kept_memory.h"
#include "runtime/packed_product.h"
#include "runtime/tensor_stamp.h"

namespace graft::runtime {

struct Frame {
  c10::Storage arena;                                                // over the memory of this run
  std::vector<at::Tensor> table;                                     // by slot
  std::vector<KeptMemory> kept;                                      // by slot
  std::vector<std::shared_ptr<const PackedProduct::Packed>> packed;  // by place among the packed products
  std::vector<StampedTensor> watched;  // of these, those whose weights others may write into
  std::vector<void*> pointers;
  std::vector<char> in_use;  // columns of the routing table that have a row
  std::shared_ptr<RunContext> context;
};

}  // namespace graft::runtime
