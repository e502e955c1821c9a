// The routing table [row, slot] of booleans: which adapters a row of a call uses. It is data for the kernels,
// and the host, which made it, knows it too: it need not wait for a device to decide what a run can leave
// out.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace graft::runtime {

/// graft::routing_table(host, device): the same table on a device; neither of them is written into again. The
/// same numbers give the same tensor, as long as they are asked for now and then.
at::Tensor routing_table(const at::Tensor& host, at::Device device);

/// What a table was made of. Undefined for one that was made otherwise, and after a write into it.
at::Tensor host_table_of(const at::Tensor& table);

/// The columns of a table in host memory that have a row.
void columns_in_use(const at::Tensor& host, std::vector<char>& in_use);

}  // namespace graft::runtime
