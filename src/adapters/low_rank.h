// Several LoRA adapters on one layer at inference, each on the rows that chose it.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace graft::adapters {

/// The adapters of one layer: for each its A [rank, in], B [out, rank], its scaling (one number) and its
/// column in the routing table.
struct LowRank {
  std::vector<at::Tensor> a, b, scaling;
  std::vector<int64_t> slots;
};

/// y [rows, out] plus scaling B A x [rows, in] of the adapters that the table [batch, slot] gives a row
/// (runtime/low_rank_add.h). An operator of its own, so that a program reads the table when it runs: what it
/// computes follows from the rows that are in use, not from the adapters that are there. It has no gradient.
at::Tensor low_rank_add(const at::Tensor& y, const at::Tensor& x, const LowRank& adapters,
                        const at::Tensor& table);

}  // namespace graft::adapters
