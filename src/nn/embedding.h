// A lookup table, torch.nn.Embedding.
#pragma once
#include "nn/weighted.h"

namespace graft::nn {

class Embedding : public WeightedLayer {
 public:
  /// `padding_idx` (-1: none) is a row whose gradient stays zero.
  Embedding(const Build& b, int64_t count, int64_t dim, int64_t padding_idx = -1);
  /// Filled by `init`, no row of it padding.
  Embedding(const Build& b, int64_t count, int64_t dim, const Init& init);
  /// A table that is another one's.
  Embedding(const Build& b, const at::Tensor& shared);
  at::Tensor apply(const at::Tensor& ids, const at::Tensor& with_weight, const at::Tensor&) const override;
  LayerKind kind() const override { return LayerKind::embedding; }
  int64_t padding_idx() const { return padding_idx_; }

 private:
  int64_t padding_idx_;
};

}  // namespace graft::nn
