#include "capture/module_options.h"

#include <torch/nn.h>

#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <variant>
#include <vector>

namespace graft {
namespace {

namespace layers = torch::nn;

/// Of the values of a layer's options, in order.
class Digest {
 public:
  void add(double value) { mix(std::bit_cast<uint64_t>(value)); }
  void add(int64_t value) { mix(static_cast<uint64_t>(value)); }
  void add(bool value) { mix(value ? 2 : 1); }
  void add(const std::string& text) { mix(std::hash<std::string>()(text)); }
  void add(const at::Tensor& tensor) { mix(std::bit_cast<uintptr_t>(tensor.unsafeGetTensorImpl())); }
  template <class T>
  void add(const std::optional<T>& value) {
    mix(value.has_value());
    if (value) add(*value);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    mix(values.size());
    for (const auto& value : values) add(value);
  }
  template <size_t n, class T>
  void add(const torch::ExpandingArray<n, T>& values) {
    for (const auto& value : *values) add(value);
  }
  template <size_t n, class T>
  void add(const torch::ExpandingArrayWithOptionalElem<n, T>& values) {
    for (const auto& value : *values) add(value);
  }
  /// One of several names (torch::kMean, torch::kSum), or a value.
  template <class... T>
  void add(const std::variant<T...>& choice) {
    mix(choice.index());
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { add(value); }) add(value);
        },
        choice);
  }
  uint64_t value() const { return value_; }

 private:
  void mix(uint64_t word) { value_ = std::rotl(value_ ^ word, 29) * 0x9e3779b97f4a7c15; }
  uint64_t value_ = 0x243f6a8885a308d3;
};

/// Every option that a forward() of libtorch reads. What only says how a layer's tensors were made is not
/// here: these are inputs.
template <class Options>
uint64_t digest(const Options& options) {
  Digest all;
  const auto add = [&](const auto& value) {
    if constexpr (requires { all.add(value); }) all.add(value);
  };
#define GRAFT_OPTION(name) \
  if constexpr (requires { options.name(); }) add(options.name())
  GRAFT_OPTION(p);
  GRAFT_OPTION(inplace);
  GRAFT_OPTION(alpha);
  GRAFT_OPTION(beta);
  GRAFT_OPTION(dim);
  GRAFT_OPTION(approximate);
  GRAFT_OPTION(lambda);
  GRAFT_OPTION(min_val);
  GRAFT_OPTION(max_val);
  GRAFT_OPTION(negative_slope);
  GRAFT_OPTION(lower);
  GRAFT_OPTION(upper);
  GRAFT_OPTION(threshold);
  GRAFT_OPTION(value);
  GRAFT_OPTION(eps);
  GRAFT_OPTION(momentum);
  GRAFT_OPTION(affine);
  GRAFT_OPTION(elementwise_affine);
  GRAFT_OPTION(track_running_stats);
  GRAFT_OPTION(normalized_shape);
  GRAFT_OPTION(num_groups);
  GRAFT_OPTION(size);
  GRAFT_OPTION(k);
  GRAFT_OPTION(kernel_size);
  GRAFT_OPTION(stride);
  GRAFT_OPTION(padding);
  GRAFT_OPTION(output_padding);
  GRAFT_OPTION(padding_mode);
  GRAFT_OPTION(dilation);
  GRAFT_OPTION(groups);
  GRAFT_OPTION(transposed);
  GRAFT_OPTION(ceil_mode);
  GRAFT_OPTION(count_include_pad);
  GRAFT_OPTION(divisor_override);
  GRAFT_OPTION(output_size);
  GRAFT_OPTION(output_ratio);
  GRAFT_OPTION(norm_type);
  GRAFT_OPTION(padding_idx);
  GRAFT_OPTION(max_norm);
  GRAFT_OPTION(scale_grad_by_freq);
  GRAFT_OPTION(sparse);
  GRAFT_OPTION(mode);
  GRAFT_OPTION(include_last_offset);
  GRAFT_OPTION(start_dim);
  GRAFT_OPTION(end_dim);
  GRAFT_OPTION(sizes);
  GRAFT_OPTION(scale_factor);
  GRAFT_OPTION(align_corners);
  GRAFT_OPTION(upscale_factor);
  GRAFT_OPTION(downscale_factor);
  GRAFT_OPTION(keepdim);
  GRAFT_OPTION(reduction);
  GRAFT_OPTION(weight);
  GRAFT_OPTION(pos_weight);
  GRAFT_OPTION(ignore_index);
  GRAFT_OPTION(label_smoothing);
  GRAFT_OPTION(margin);
  GRAFT_OPTION(delta);
  GRAFT_OPTION(swap);
  GRAFT_OPTION(blank);
  GRAFT_OPTION(zero_infinity);
  GRAFT_OPTION(log_input);
  GRAFT_OPTION(full);
  GRAFT_OPTION(log_target);
  GRAFT_OPTION(batch_first);
  GRAFT_OPTION(dropout);
  GRAFT_OPTION(bidirectional);
  GRAFT_OPTION(num_layers);
  GRAFT_OPTION(hidden_size);
  GRAFT_OPTION(proj_size);
  GRAFT_OPTION(bias);
  GRAFT_OPTION(nonlinearity);
  GRAFT_OPTION(num_heads);
  GRAFT_OPTION(embed_dim);
  GRAFT_OPTION(add_zero_attn);
  GRAFT_OPTION(activation);
#undef GRAFT_OPTION
  return all.value();
}

template <class M>
uint64_t read(const torch::nn::Module& module) {
  return digest(static_cast<const M&>(module).options);
}

using Readers = std::unordered_map<std::type_index, ReadOptions>;

template <class... M>
Readers readers_of() {
  return {{typeid(M), &read<M>}...};
}

const Readers& readers() {
  static const auto all = readers_of<
      layers::DropoutImpl, layers::Dropout2dImpl, layers::Dropout3dImpl, layers::AlphaDropoutImpl,
      layers::FeatureAlphaDropoutImpl,
      // Activations
      layers::ELUImpl, layers::SELUImpl, layers::HardshrinkImpl, layers::HardtanhImpl, layers::LeakyReLUImpl,
      layers::SoftmaxImpl, layers::SoftminImpl, layers::LogSoftmaxImpl, layers::ReLUImpl, layers::ReLU6Impl,
      layers::RReLUImpl, layers::CELUImpl, layers::GLUImpl, layers::GELUImpl, layers::SoftplusImpl,
      layers::SoftshrinkImpl, layers::ThresholdImpl, layers::MultiheadAttentionImpl,
      // Norms
      layers::BatchNorm1dImpl, layers::BatchNorm2dImpl, layers::BatchNorm3dImpl, layers::InstanceNorm1dImpl,
      layers::InstanceNorm2dImpl, layers::InstanceNorm3dImpl, layers::LayerNormImpl, layers::GroupNormImpl,
      layers::LocalResponseNormImpl, layers::CrossMapLRN2dImpl,
      // Convolutions, pooling, padding
      layers::Conv1dImpl, layers::Conv2dImpl, layers::Conv3dImpl, layers::ConvTranspose1dImpl,
      layers::ConvTranspose2dImpl, layers::ConvTranspose3dImpl, layers::AvgPool1dImpl, layers::AvgPool2dImpl,
      layers::AvgPool3dImpl, layers::MaxPool1dImpl, layers::MaxPool2dImpl, layers::MaxPool3dImpl,
      layers::MaxUnpool1dImpl, layers::MaxUnpool2dImpl, layers::MaxUnpool3dImpl,
      layers::AdaptiveAvgPool1dImpl, layers::AdaptiveAvgPool2dImpl, layers::AdaptiveAvgPool3dImpl,
      layers::AdaptiveMaxPool1dImpl, layers::AdaptiveMaxPool2dImpl, layers::AdaptiveMaxPool3dImpl,
      layers::FractionalMaxPool2dImpl, layers::FractionalMaxPool3dImpl, layers::LPPool1dImpl,
      layers::LPPool2dImpl, layers::LPPool3dImpl, layers::ConstantPad1dImpl, layers::ConstantPad2dImpl,
      layers::ConstantPad3dImpl, layers::ReflectionPad1dImpl, layers::ReflectionPad2dImpl,
      layers::ReflectionPad3dImpl, layers::ReplicationPad1dImpl, layers::ReplicationPad2dImpl,
      layers::ReplicationPad3dImpl, layers::ZeroPad1dImpl, layers::ZeroPad2dImpl, layers::ZeroPad3dImpl,
      layers::FoldImpl, layers::UnfoldImpl, layers::UpsampleImpl, layers::PixelShuffleImpl,
      layers::PixelUnshuffleImpl,
      // Other layers
      layers::EmbeddingImpl, layers::EmbeddingBagImpl, layers::FlattenImpl, layers::UnflattenImpl,
      layers::CosineSimilarityImpl, layers::PairwiseDistanceImpl, layers::RNNImpl, layers::LSTMImpl,
      layers::GRUImpl, layers::RNNCellImpl, layers::TransformerEncoderLayerImpl,
      layers::TransformerDecoderLayerImpl,
      // Losses
      layers::L1LossImpl, layers::MSELossImpl, layers::BCELossImpl, layers::BCEWithLogitsLossImpl,
      layers::CrossEntropyLossImpl, layers::NLLLossImpl, layers::KLDivLossImpl,
      layers::HingeEmbeddingLossImpl, layers::MultiMarginLossImpl, layers::CosineEmbeddingLossImpl,
      layers::MultiLabelMarginLossImpl, layers::SoftMarginLossImpl, layers::MultiLabelSoftMarginLossImpl,
      layers::TripletMarginLossImpl, layers::CTCLossImpl, layers::SmoothL1LossImpl, layers::HuberLossImpl,
      layers::PoissonNLLLossImpl, layers::MarginRankingLossImpl>();
  return all;
}

}  // namespace

ReadOptions options_reader(const torch::nn::Module& module) {
  const auto found = readers().find(typeid(module));
  return found == readers().end() ? nullptr : found->second;
}

}  // namespace graft
