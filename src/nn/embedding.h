// A lookup table, torch.nn.Embedding.
#pragma once
#include "nn/build.h"

namespace graft::nn {

class Embedding : public Layer {
 public:
  /// `padding_idx` (-1: none) is a row whose gradient stays zero.
  Embedding(const Build& b, int64_t count, int64_t dim, int64_t padding_idx = -1);
  at::Tensor forward(const at::Tensor& ids);

  at::Tensor weight;

 private:
  int64_t padding_idx_;
};

}  // namespace graft::nn
