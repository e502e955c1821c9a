#include "targets/cpu/products.h"

#include <ATen/ATen.h>

#include "support/host.h"

namespace graft::cpu {
namespace {

/// On Arm, ATen hands x W^T to the Compute Library, which copies W into an order of its own first. Without
/// SVE BLAS is faster (by 5 % for large products, twice as fast for narrow ones) and copies nothing; and to
/// BLAS ATen goes if the same product is asked for the other way round: (W x^T)^T. By the CPU and the shapes,
/// not by measuring: the same program gives the same bits tomorrow.
bool is_better_turned(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kSmall = 8;  // ATen's own bound: BLAS has what is not larger
  return is_arm_without_sve() && out.scalar_type() == at::kFloat && out.stride(1) == 1 &&
         out.size(0) > kSmall && out.size(1) > kSmall && a.size(1) > kSmall && a.stride(1) == 1 &&
         b.stride(0) == 1 && b.stride(1) >= b.size(0);
}

/// The transpose of something that broadcasts to a matrix.
at::Tensor turned(const at::Tensor& added) {
  if (added.dim() == 2) return added.t();
  return added.dim() == 1 ? added.unsqueeze(1) : added;
}

}  // namespace

void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (is_better_turned(out, a, b)) {
    auto result = out.t();
    at::mm_out(result, b.t(), a.t());
  } else {
    auto result = out;
    at::mm_out(result, a, b);
  }
}

void multiply_and_add_into(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                           const at::Tensor& b, double beta, double alpha) {
  if (is_better_turned(out, a, b)) {
    auto result = out.t();
    at::addmm_out(result, added.is_same(out) ? result : turned(added), b.t(), a.t(), beta, alpha);
  } else {
    auto result = out;
    at::addmm_out(result, added, a, b, beta, alpha);
  }
}

}  // namespace graft::cpu
