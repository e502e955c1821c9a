#include "nn/embedding.h"

#include "graft/error.h"

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
  try {
    return at::embedding(with_weight, ids, padding_idx_);
  } catch (const c10::IndexError&) {  // which says neither of which table nor how long it is
    throw UsageError("[embedding] an index is out of range in " + path() + ", which has " +
                     std::to_string(with_weight.size(0)) + " rows");
  }
}

}  // namespace graft::nn
