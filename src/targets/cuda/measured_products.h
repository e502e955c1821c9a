// Products in half precision by the algorithm of cuBLASLt that is the fastest here, found by measuring.
#pragma once
#include <memory>

#include "cache/choices.h"
#include "runtime/device.h"

namespace graft::cuda {

/// runtime::Device::fastest_way().
std::shared_ptr<const runtime::ProductWay> fastest_way(const ir::TensorType& out, const ir::TensorType* added,
                                                       const ir::TensorType& a, const ir::TensorType& b,
                                                       const cache::Measuring& how);

}  // namespace graft::cuda
