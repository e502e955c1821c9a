#include "adapters/svd.h"

#include <ATen/ATen.h>

namespace graft::adapters {

Singular singular(const at::Tensor& matrix) {
  const auto [u, s, vh] = at::linalg_svd(matrix, /*full_matrices=*/false);
  return {u, s, vh};
}

Singular largest_singular(const at::Tensor& matrix, int64_t count, int64_t rounds,
                          const std::optional<at::Generator>& generator) {
  const bool wide = matrix.size(0) < matrix.size(1);
  const auto tall = wide ? matrix.t() : matrix;
  const auto basis = [](const at::Tensor& columns) { return std::get<0>(at::linalg_qr(columns)); };
  const auto start = at::randn({tall.size(1), count}, generator, at::TensorOptions(tall.scalar_type()));
  auto q = basis(at::matmul(tall, start.to(tall.device())));
  for (int64_t i = 0; i < rounds; ++i) q = basis(at::matmul(tall, basis(at::matmul(tall.t(), q))));
  const auto inner = singular(at::matmul(q.t(), tall));
  const auto u = at::matmul(q, inner.u);
  return wide ? Singular{inner.vh.t(), inner.s, u.t()} : Singular{u, inner.s, inner.vh};
}

}  // namespace graft::adapters
