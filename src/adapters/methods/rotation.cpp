#include "adapters/methods/rotation.h"

#include <ATen/ATen.h>

namespace graft::adapters {

at::Tensor cayley(const at::Tensor& skew) {
  const auto wide = skew.to(at::promote_types(skew.scalar_type(), at::kFloat));
  const auto identity = at::eye(skew.size(-1), wide.options()).expand_as(wide);
  // I + Q is never singular: nothing to check, which would need a look at the data.
  return std::get<0>(at::linalg_solve_ex(identity + wide, identity - wide, /*left=*/false,
                                         /*check_errors=*/false))
      .to(skew.scalar_type());
}

at::Tensor cayley_series(const at::Tensor& skew, int64_t terms) {
  at::Tensor sum = at::eye(skew.size(-1), skew.options()).expand_as(skew);
  if (terms > 1) sum = sum + 2 * skew;
  if (terms <= 2) return sum;
  auto power = at::matmul(skew, skew);
  sum = sum + 2 * power;
  for (int64_t i = 3; i < terms - 1; ++i) {
    power = at::matmul(power, skew);
    sum = sum + 2 * power;
  }
  return sum + at::matmul(power, skew);
}

at::Tensor rotate_blocks(const at::Tensor& x, const at::Tensor& blocks) {
  const int64_t count = blocks.size(0), size = blocks.size(1);
  if (count == 1) {
    auto sizes = x.sizes().vec();
    sizes.back() /= size;
    sizes.push_back(size);
    return at::matmul(x.reshape(sizes), blocks.select(0, 0)).reshape(x.sizes());
  }
  const auto pieces = x.reshape({-1, count, size}).transpose(0, 1);
  return at::bmm(pieces, blocks).transpose(0, 1).reshape(x.sizes());
}

at::Tensor rotate_channels(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& rotate) {
  return rotate(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}).contiguous();
}

}  // namespace graft::adapters
