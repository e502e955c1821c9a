// What launches of kernels over matrices have in common.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "targets/cuda/module.h"
#include "targets/cuda_code/narrow_products.h"

namespace graft::cuda {

/// The kernels of one function of a text, each of which is compiled when it is asked for first.
class MatrixKernels {
 public:
  using Text = std::string (*)(const NarrowKind&);
  MatrixKernels(const char* name, Text text) : name_(name), text_(text) {}
  const LoadedKernel& get(const NarrowKind& kind);

 private:
  const char* name_;
  Text text_;
  std::mutex guard_;
  std::map<NarrowKind, std::unique_ptr<const LoadedKernel>> all_;
};

void* stream_of(const at::Tensor& x);
int64_t blocks_of(int64_t count, int64_t size);

/// Whether there is code for matrices of its dtype.
bool has_code(at::ScalarType dtype);
/// In memory that begins at a multiple of 16 bytes.
bool is_aligned(const at::Tensor& x);
/// Rows of whole groups, each of which can be read at once.
bool lies_along_rows(const at::Tensor& x);
/// Whether this GPU has the matrix units' instructions.
bool has_matrix_units();

/// Of this GPU.
Division division();

/// That kernels count in 32 bits; blocks in the second and third dimension of a grid.
constexpr int64_t most_rows_or_columns = int64_t{1} << 30, most_blocks = 65535;
/// So many rows have few enough blocks in every kernel.
constexpr int64_t most_rows_in_blocks = most_blocks * 16;

}  // namespace graft::cuda
