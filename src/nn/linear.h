// The two spellings of y = x W + b that checkpoints use.
#pragma once
#include "nn/build.h"

namespace graft::nn {

/// torch.nn.Linear: weight is [out, in].
class Linear : public Layer {
 public:
  Linear(const Build& b, int64_t in_features, int64_t out_features, bool bias = true);
  /// With weight and bias both filled by `init`.
  Linear(const Build& b, int64_t in_features, int64_t out_features, const Init& init);
  /// An output projection whose weight is `shared`, an embedding's.
  Linear(const Build& b, const at::Tensor& shared, bool bias = false);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;
};

/// transformers' Conv1D (GPT-2): weight is [in, out].
class Conv1D : public Layer {
 public:
  Conv1D(const Build& b, int64_t in_features, int64_t out_features);
  Conv1D(const Build& b, int64_t in_features, int64_t out_features, const Init& init);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias;
};

}  // namespace graft::nn
