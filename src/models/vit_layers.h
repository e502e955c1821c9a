// The parts of ViT that other transformers over patches have too, under the same names.
#pragma once
#include <array>
#include <string>

#include "nn/activation.h"
#include "nn/conv.h"
#include "nn/linear.h"

namespace graft {

using HeightWidth = std::array<int64_t, 2>;

/// "224 x 224".
std::string shown(const HeightWidth& size);

/// An image cut into patches, each projected: [batch, patches, hidden], row by row.
class PatchEmbeddings : public torch::nn::Module {
 public:
  PatchEmbeddings(const nn::Build& b, int64_t channels, int64_t hidden, const HeightWidth& patch);
  /// UsageError for another number of channels, or an image smaller than a patch.
  at::Tensor forward(const at::Tensor& pixel_values);

 private:
  int64_t channels_;
  HeightWidth patch_;
  std::shared_ptr<nn::Conv2d> projection;
};

struct PatchAttentionShape {
  int64_t hidden, heads, head_dim;
  bool qkv_bias;
  double dropout;
};

class PatchAttention : public torch::nn::Module {
 public:
  PatchAttention(const nn::Build& b, const PatchAttentionShape& shape);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  int64_t head_dim_;
  double dropout_;
  std::shared_ptr<nn::Linear> q_proj, k_proj, v_proj, o_proj;
};

class PatchMLP : public torch::nn::Module {
 public:
  PatchMLP(const nn::Build& b, int64_t hidden, int64_t intermediate, nn::Activation activation);
  at::Tensor forward(const at::Tensor& x) { return fc2->forward(activation_(fc1->forward(x))); }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> fc1, fc2;
};

}  // namespace graft
