#include "nn/weighted.h"

namespace graft::nn {

std::string_view name_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::linear:
      return "Linear";
    case LayerKind::conv1d:
      return "Conv1D";
    case LayerKind::conv2d:
      return "Conv2d";
    case LayerKind::embedding:
      return "Embedding";
    case LayerKind::norm:
      return "a normalisation";
    case LayerKind::batch_norm:
      return "BatchNorm2d";
  }
  return "";
}

void WeightedLayer::replace(const std::string& name, const at::Tensor& tensor) {
  (name == "weight" ? weight : bias) = tensor;
  parameters_[name] = tensor;
  structure_->changed();
}

void WeightedLayer::wrap(std::shared_ptr<Wrapper> wrapper) {
  if (wrapper_) unregister_module(kWrapperName);
  wrapper_ = std::move(wrapper);
  structure_->changed();
  if (!wrapper_) return;
  wrapper_->train(is_training());
  register_module(kWrapperName, wrapper_);
}

bool is_wrapped_path(std::string_view path) {
  return path.find(WeightedLayer::kWrapperName) != std::string_view::npos;
}

}  // namespace graft::nn
