#include "nn/embedding.h"

namespace graft::nn {

Embedding::Embedding(const Build& b, int64_t count, int64_t dim, int64_t padding_idx)
    : WeightedLayer(b), padding_idx_(padding_idx) {
  weight = b.parameter(*this, "weight", {count, dim}, {Init::Kind::normal, b.init_std(), padding_idx});
}

at::Tensor Embedding::apply(const at::Tensor& ids, const at::Tensor& with_weight, const at::Tensor&) const {
  return at::embedding(with_weight, ids, padding_idx_);
}

}  // namespace graft::nn
