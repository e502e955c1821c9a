// The launch of cuda_code/row_write.
#pragma once
#include "runtime/device.h"

namespace graft::cuda {

void write_rows(const runtime::Device::RowWrite& rows, runtime::RunContext& context);

}  // namespace graft::cuda
