// The two spellings of y = x W + b that checkpoints use.
#pragma once
#include "nn/weighted.h"

namespace graft::nn {

/// torch.nn.Linear: weight is [out, in].
class Linear : public WeightedLayer {
 public:
  Linear(const Build& b, int64_t in_features, int64_t out_features, bool bias = true);
  /// With weight and bias both filled by `init`.
  Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init);
  /// With the weight filled by `init` and no bias.
  struct NoBias {};
  Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init, NoBias);
  /// An output projection whose weight is `shared`, an embedding's.
  Linear(const Build& b, const at::Tensor& shared, bool bias = false);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                   const at::Tensor& with_bias) const override;
  LayerKind kind() const override { return LayerKind::linear; }
};

/// Lays the weights of layers that read the same one after the other in one storage, so that a program for a
/// GPU can multiply with all of them at once without a copy of its own (passes/adjacent_siblings.h). The
/// weights stay the tensors they are. Nothing where they are on the CPU, whose files are mapped as they lie,
/// or of several kinds.
void lay_side_by_side(const std::vector<std::shared_ptr<Linear>>& layers);

/// transformers' Conv1D (GPT-2): weight is [in, out].
class Conv1D : public WeightedLayer {
 public:
  Conv1D(const Build& b, int64_t in_features, int64_t out_features);
  Conv1D(const Build& b, int64_t in_features, int64_t out_features, const Init& init);
  at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                   const at::Tensor& with_bias) const override;
  LayerKind kind() const override { return LayerKind::conv1d; }
};

}  // namespace graft::nn
