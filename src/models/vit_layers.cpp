#include "models/vit_layers.h"

#include <cmath>

#include "graft/error.h"
#include "nn/attention.h"

namespace graft {

std::string shown(const HeightWidth& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]);
}

PatchEmbeddings::PatchEmbeddings(const nn::Build& b, int64_t channels, int64_t hidden,
                                 const HeightWidth& patch)
    : channels_(channels), patch_(patch) {
  projection = b.child<nn::Conv2d>(
      *this, "projection", nn::Conv2dShape{.in = channels, .out = hidden, .kernel = patch, .stride = patch});
}

at::Tensor PatchEmbeddings::forward(const at::Tensor& pixel_values) {
  if (pixel_values.size(1) != channels_)
    throw UsageError("[models] pixel_values have " + std::to_string(pixel_values.size(1)) +
                     " channels; the model expects " + std::to_string(channels_));
  const HeightWidth got{pixel_values.size(2), pixel_values.size(3)};
  if (got[0] < patch_[0] || got[1] < patch_[1])
    throw UsageError("[models] pixel_values are " + shown(got) +
                     " (height x width), smaller than a patch of " + shown(patch_));
  return projection->forward(pixel_values.to(projection->weight.scalar_type())).flatten(2).transpose(1, 2);
}

PatchAttention::PatchAttention(const nn::Build& b, const PatchAttentionShape& shape)
    : head_dim_(shape.head_dim), dropout_(shape.dropout) {
  const int64_t width = shape.heads * shape.head_dim;
  q_proj = b.child<nn::Linear>(*this, "q_proj", shape.hidden, width, shape.qkv_bias);
  k_proj = b.child<nn::Linear>(*this, "k_proj", shape.hidden, width, shape.qkv_bias);
  v_proj = b.child<nn::Linear>(*this, "v_proj", shape.hidden, width, shape.qkv_bias);
  o_proj = b.child<nn::Linear>(*this, "o_proj", width, shape.hidden);
}

at::Tensor PatchAttention::forward(const at::Tensor& x, const at::Tensor& mask) {
  const auto heads = [&](const nn::Linear& projection) {
    return nn::split_heads(projection.forward(x), head_dim_);
  };
  const nn::AttentionOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                     .dropout = is_training() ? dropout_ : 0.0};
  const auto q = heads(*q_proj), k = heads(*k_proj), v = heads(*v_proj);
  return o_proj->forward(nn::attend(q, k, v, mask, options));
}

PatchMLP::PatchMLP(const nn::Build& b, int64_t hidden, int64_t intermediate, nn::Activation activation)
    : activation_(activation) {
  fc1 = b.child<nn::Linear>(*this, "fc1", hidden, intermediate);
  fc2 = b.child<nn::Linear>(*this, "fc2", intermediate, hidden);
}

}  // namespace graft
