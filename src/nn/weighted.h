// A layer with a weight and perhaps a bias: what adapters attach to.
#pragma once
#include "nn/build.h"
#include "nn/resident.h"
#include "support/guarded_state.h"

namespace graft::nn {

/// conv1d is transformers' Conv1D: a linear layer with its weight the other way round.
enum class LayerKind { linear, conv1d, conv2d, embedding, norm, batch_norm };

std::string_view name_of(LayerKind kind);

class WeightedLayer;

/// What stands between a layer and its callers. Registered as the layer's child, so that its tensors are part
/// of the module tree.
class Wrapper : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const WeightedLayer& layer, const at::Tensor& x) = 0;
};

class WeightedLayer : public Layer {
 public:
  using Layer::Layer;

  at::Tensor forward(const at::Tensor& x) const {
    read_state(structure_, "a layer's wrapper or its weights", this);
    return with_weights(*this, x, [this](const at::Tensor& in) {
      return wrapper_ ? wrapper_->forward(*this, in) : apply(in, weight, bias);
    });
  }
  /// The layer's own function, with these in place of its weight and bias.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& with_weight,
                           const at::Tensor& with_bias) const = 0;
  virtual LayerKind kind() const = 0;

  /// Puts another tensor under "weight" or "bias" and leaves the old one as it is: a layer that shared it is
  /// not touched.
  void replace(const std::string& name, const at::Tensor& tensor);

  const std::shared_ptr<Wrapper>& wrapper() const { return wrapper_; }
  /// Null takes the wrapper away.
  void wrap(std::shared_ptr<Wrapper> wrapper);
  /// The wrapper's name among the layer's children: its tensors are no part of a checkpoint.
  static constexpr const char* kWrapperName = "@adapters";

  at::Tensor weight, bias;

 private:
  std::shared_ptr<Wrapper> wrapper_;
  /// Of what wrap() and replace() change: a program that reaches the layer by itself has the old tensors.
  std::shared_ptr<StateVersion> structure_ = std::make_shared<StateVersion>();
};

/// Whether a parameter's path is a wrapper's, not the model's own.
bool is_wrapped_path(std::string_view path);

}  // namespace graft::nn
