#include "models/convnext.h"

#include <ATen/ATen.h>

#include <numeric>

#include "graft/error.h"
#include "models/heads.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/norm.h"

namespace graft {
namespace {

constexpr double kEps = 1e-6;  // of every norm but the last, which the config gives
constexpr int64_t kExpansion = 4;

struct ConvNextSizes {
  int64_t channels;
  std::array<int64_t, 2> patch;
  std::vector<int64_t> hidden, depths;
  double eps, layer_scale, drop_path;
  nn::Activation activation;

  explicit ConvNextSizes(const Config& config)
      : channels(config.size("num_channels", 3)),
        patch(config.height_width("patch_size", 4)),
        hidden(config.integers("hidden_sizes", std::vector<int64_t>{96, 192, 384, 768})),
        depths(config.integers("depths", std::vector<int64_t>{3, 3, 9, 3})),
        eps(norm_eps(config, "layer_norm_eps", 1e-12)),
        layer_scale(config.number("layer_scale_init_value", 1e-6)),
        drop_path(nn::dropout_rate(config, "drop_path_rate", 0.0)),
        activation(nn::activation(config.string("hidden_act", "gelu"))) {
    check_common_config(config);
    const auto stages = config.size("num_stages", 4);
    if (static_cast<int64_t>(hidden.size()) != stages || static_cast<int64_t>(depths.size()) != stages)
      throw ConfigError("[convnext] \"hidden_sizes\" (" + std::to_string(hidden.size()) +
                        " of them) and \"depths\" (" + std::to_string(depths.size()) +
                        ") must name \"num_stages\" stages, " + std::to_string(stages));
    check_entries("hidden_sizes", hidden, 1);
    check_entries("depths", depths, 0);
    // Any size of image will do; and which stages a backbone shows.
    config.acknowledge({"image_size", "out_features", "out_indices", "stage_names"});
  }

  /// How often a block is left out of a training step: rising evenly from never at the first to `drop_path`.
  double drop_path_of(int64_t block) const {
    const auto count = std::accumulate(depths.begin(), depths.end(), int64_t{0});
    return count > 1 ? drop_path * static_cast<double>(block) / static_cast<double>(count - 1) : 0.0;
  }

 private:
  static void check_entries(const std::string& key, const std::vector<int64_t>& entries, int64_t least) {
    for (const auto entry : entries)
      if (entry < least || entry > INT32_MAX)
        throw ConfigError("[convnext] an entry of \"" + key + "\" is " + std::to_string(entry) +
                          "; it must be between " + std::to_string(least) + " and 2147483647");
  }
};

/// A norm over the channels of [batch, channels, height, width].
at::Tensor by_channels(const nn::LayerNorm& norm, const at::Tensor& x) {
  return norm.forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

class ConvNextEmbeddings : public torch::nn::Module {
 public:
  ConvNextEmbeddings(const nn::Build& b, const ConvNextSizes& s) : channels_(s.channels), patch_(s.patch) {
    patch_embeddings = b.child<nn::Conv2d>(
        *this, "patch_embeddings",
        nn::Conv2dShape{.in = s.channels, .out = s.hidden[0], .kernel = s.patch, .stride = s.patch});
    layernorm = b.child<nn::LayerNorm>(*this, "layernorm", s.hidden[0], kEps);
  }

  at::Tensor forward(const at::Tensor& pixel_values) {
    if (pixel_values.size(1) != channels_)
      throw UsageError("[convnext] pixel_values have " + std::to_string(pixel_values.size(1)) +
                       " channels; the model expects " + std::to_string(channels_));
    if (pixel_values.size(2) < patch_[0] || pixel_values.size(3) < patch_[1])
      throw UsageError("[convnext] pixel_values are smaller than a patch");
    return by_channels(*layernorm, patch_embeddings->forward(pixel_values));
  }

 private:
  int64_t channels_;
  std::array<int64_t, 2> patch_;
  std::shared_ptr<nn::Conv2d> patch_embeddings;
  std::shared_ptr<nn::LayerNorm> layernorm;
};

class ConvNextLayer : public torch::nn::Module {
 public:
  ConvNextLayer(const nn::Build& b, const ConvNextSizes& s, int64_t dim, double drop_path)
      : drop_path_(drop_path), activation_(s.activation) {
    if (s.layer_scale > 0)
      layer_scale_parameter =
          b.parameter(*this, "layer_scale_parameter", {dim}, {nn::Init::Kind::constant, s.layer_scale});
    dwconv = b.child<nn::Conv2d>(
        *this, "dwconv",
        nn::Conv2dShape{.in = dim, .out = dim, .kernel = {7, 7}, .padding = {3, 3}, .groups = dim});
    layernorm = b.child<nn::LayerNorm>(*this, "layernorm", dim, kEps);
    pwconv1 = b.child<nn::Linear>(*this, "pwconv1", dim, kExpansion * dim);
    pwconv2 = b.child<nn::Linear>(*this, "pwconv2", kExpansion * dim, dim);
  }

  at::Tensor forward(const at::Tensor& x) {
    auto y = layernorm->forward(dwconv->forward(x).permute({0, 2, 3, 1}));
    y = pwconv2->forward(activation_(pwconv1->forward(y)));
    if (layer_scale_parameter.defined()) y = layer_scale_parameter * y;
    return x + nn::drop_path(y.permute({0, 3, 1, 2}), drop_path_, is_training());
  }

 private:
  double drop_path_;
  nn::Activation activation_;
  at::Tensor layer_scale_parameter;
  std::shared_ptr<nn::Conv2d> dwconv;
  std::shared_ptr<nn::LayerNorm> layernorm;
  std::shared_ptr<nn::Linear> pwconv1, pwconv2;
};

/// Norm and convolution that halve the image, named as a list of the two.
class ConvNextDownsampling : public torch::nn::Module {
 public:
  ConvNextDownsampling(const nn::Build& b, int64_t in, int64_t out) {
    norm = b.child<nn::LayerNorm>(*this, "0", in, kEps);
    convolution = b.child<nn::Conv2d>(
        *this, "1", nn::Conv2dShape{.in = in, .out = out, .kernel = {2, 2}, .stride = {2, 2}});
  }

  at::Tensor forward(const at::Tensor& x) {
    if (x.size(2) < 2 || x.size(3) < 2)
      throw UsageError("[convnext] pixel_values are too small: a stage has nothing left to halve");
    return convolution->forward(by_channels(*norm, x));
  }

 private:
  std::shared_ptr<nn::LayerNorm> norm;
  std::shared_ptr<nn::Conv2d> convolution;
};

class ConvNextStage : public torch::nn::Module {
 public:
  ConvNextStage(const nn::Build& b, const ConvNextSizes& s, int64_t stage) {
    const int64_t dim = s.hidden[stage];
    if (stage > 0)
      downsampling_layer =
          b.child<ConvNextDownsampling>(*this, "downsampling_layer", s.hidden[stage - 1], dim);
    const auto before = std::accumulate(s.depths.begin(), s.depths.begin() + stage, int64_t{0});
    layers = b.child<nn::List<ConvNextLayer>>(
        *this, "layers", s.depths[stage], [&](const nn::Build& at, int64_t i) {
          return std::make_shared<ConvNextLayer>(at, s, dim, s.drop_path_of(before + i));
        });
  }

  at::Tensor forward(at::Tensor x, bool recompute) {
    if (downsampling_layer) x = downsampling_layer->forward(x);
    return nn::through(*layers, std::move(x), recompute);
  }

 private:
  std::shared_ptr<ConvNextDownsampling> downsampling_layer;
  std::shared_ptr<nn::List<ConvNextLayer>> layers;
};

class ConvNextEncoder : public torch::nn::Module {
 public:
  ConvNextEncoder(const nn::Build& b, const ConvNextSizes& s) {
    stages = b.child<nn::List<ConvNextStage>>(
        *this, "stages", static_cast<int64_t>(s.depths.size()),
        [&](const nn::Build& at, int64_t i) { return std::make_shared<ConvNextStage>(at, s, i); });
  }

  at::Tensor forward(at::Tensor x, bool recompute) {
    for (const auto& stage : *stages) x = stage->forward(x, recompute);
    return x;
  }

 private:
  std::shared_ptr<nn::List<ConvNextStage>> stages;
};

class ConvNextModel : public PreTrainedModel {
 public:
  ConvNextModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const ConvNextSizes s(config);
    embeddings = b.child<ConvNextEmbeddings>(*this, "embeddings", s);
    encoder = b.child<ConvNextEncoder>(*this, "encoder", s);
    layernorm = b.child<nn::LayerNorm>(*this, "layernorm", s.hidden.back(), s.eps);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ConvNextModel", {"pixel_values"}, {});
    return features(inputs);
  }

  ModelOutput features(const ModelInputs& inputs) {
    const auto x = embeddings->forward(inputs.pixel_values.to(dtype()));
    const auto hidden = encoder->forward(x, checkpointing_ && is_training());
    return {.last_hidden_state = hidden, .pooler_output = layernorm->forward(hidden.mean({-2, -1}))};
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<ConvNextEmbeddings> embeddings;
  std::shared_ptr<ConvNextEncoder> encoder;
  std::shared_ptr<nn::LayerNorm> layernorm;
};

class ConvNextForImageClassification : public PreTrainedModel {
 public:
  ConvNextForImageClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    convnext = b.child<ConvNextModel>(*this, "convnext", config);
    classifier =
        b.child<nn::Linear>(*this, "classifier", ConvNextSizes(config).hidden.back(), config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ConvNextForImageClassification", {"pixel_values"}, {"labels"});
    ModelOutput out{.logits = classifier->forward(convnext->features(inputs).pooler_output)};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

  void set_checkpointing(bool on) override { convnext->set_checkpointing(on); }

 private:
  std::shared_ptr<ConvNextModel> convnext;
  std::shared_ptr<nn::Linear> classifier;
};

}  // namespace

std::vector<Architecture> convnext_architectures() {
  return {{.name = "ConvNextModel",
           .model_type = "convnext",
           .task = Task::base,
           .base_prefix = "convnext",
           .make = make_model<ConvNextModel>},
          {.name = "ConvNextForImageClassification",
           .model_type = "convnext",
           .task = Task::image_classification,
           .base_prefix = "convnext",
           .make = make_model<ConvNextForImageClassification>}};
}

}  // namespace graft
