// The launch of cuda_code/row_write.
#pragma once
#include <span>

#include "runtime/device.h"

namespace graft::cuda {

/// runtime::Device::write_rows().
void write_rows(std::span<const runtime::Device::RowWrite> all, runtime::RunContext& context);

}  // namespace graft::cuda
