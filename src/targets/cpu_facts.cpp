#include "targets/cpu_facts.h"

#include "support/host.h"

namespace graft::cpu {

const codegen::Limits& limits() {
  static constexpr codegen::Limits limits{
      // Larger kernels gain nothing and cost registers and compile time.
      .nodes = 48,
      .buffers = 20,
      .long_row = 1 << 14,
      .few_rows = 64,
      // Of floats, half a megabyte: no longer near the core.
      .far_row = 1 << 17,
      .scatter_points = 64,
      .scans = true,
  };
  return limits;
}

namespace {

bool products_are_slow(ir::DType dtype) {
  return dtype == ir::DType::bf16 ? !has_bfloat16_products() : !has_float16_products();
}

}  // namespace

const passes::TargetFacts& facts() {
  static const passes::TargetFacts facts{
      .products_are_slow = products_are_slow,
      .rows_of_a_kernel = [](ir::DType dtype) { return products_are_slow(dtype) ? 4 : 0; },
      .narrow_product = 32,
      .folds_weights = true,
  };
  return facts;
}

const std::vector<std::string>& code_levels() {
  static const std::vector<std::string> levels = {"llvm"};
  return levels;
}

std::string_view library_for(ir::OpKind kind) {
  if (kind == ir::OpKind::matmul) return "BLAS";
  return kind == ir::OpKind::convolution ? "oneDNN" : "ATen";
}

}  // namespace graft::cpu
