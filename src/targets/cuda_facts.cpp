#include "targets/cuda_facts.h"

#include <limits>

namespace graft::cuda {

const codegen::Limits& limits() {
  // No row is short enough for a kernel that continues over all rows: there is no code for that yet. Running
  // sums are ATen's, which have many threads for a line.
  static constexpr codegen::Limits limits{
      .nodes = 48,
      .buffers = 20,
      .long_row = 0,
      .few_rows = std::numeric_limits<int64_t>::max(),
      .far_row = std::numeric_limits<int64_t>::max(),
      .scatter_points = 1024,
  };
  return limits;
}

const passes::TargetFacts& facts() {
  static const passes::TargetFacts facts{.rows_of_a_kernel = [](ir::DType) { return 2; },
                                         .narrow_product = 64,
                                         .joins_adjacent = true,
                                         .short_side = 128,
                                         .halves_low_rank = true,
                                         .few_queries = 4};
  return facts;
}

const std::vector<std::string>& code_levels() {
  static const std::vector<std::string> levels = {"cuda"};
  return levels;
}

std::string_view library_for(ir::OpKind kind) {
  if (kind == ir::OpKind::matmul) return "cuBLAS";
  return kind == ir::OpKind::convolution ? "cuDNN" : "ATen";
}

}  // namespace graft::cuda
