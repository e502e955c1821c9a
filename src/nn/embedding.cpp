#include "nn/embedding.h"

namespace graft::nn {

Embedding::Embedding(const Build& b, int64_t count, int64_t dim, int64_t padding_idx)
    : WeightedLayer(b), padding_idx_(padding_idx) {
  weight = b.parameter(*this, "weight", {count, dim}, {Init::Kind::normal, b.init_std(), padding_idx});
}

Embedding::Embedding(const Build& b, int64_t count, int64_t dim, const Init& init)
    : WeightedLayer(b), padding_idx_(-1) {
  weight = b.parameter(*this, "weight", {count, dim}, init);
}

Embedding::Embedding(const Build& b, const at::Tensor& shared) : WeightedLayer(b), padding_idx_(-1) {
  weight = b.tied(*this, "weight", shared);
}

at::Tensor Embedding::apply(const at::Tensor& ids, const at::Tensor& with_weight, const at::Tensor&) const {
  return at::embedding(with_weight, ids, padding_idx_);
}

}  // namespace graft::nn
