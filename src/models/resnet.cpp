#include "models/resnet.h"

#include <cmath>

#include <utility>

#include "graft/error.h"
#include "models/heads.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/norm.h"

namespace graft {
namespace {

struct ResNetSizes {
  int64_t channels, embedding;
  std::vector<int64_t> hidden, depths;
  bool bottleneck, downsample_in_first_stage, downsample_in_bottleneck;
  nn::Activation activation;

  explicit ResNetSizes(const Config& config)
      : channels(config.size("num_channels", 3)),
        embedding(config.size("embedding_size", 64)),
        hidden(config.integers("hidden_sizes", std::vector<int64_t>{256, 512, 1024, 2048})),
        depths(config.integers("depths", std::vector<int64_t>{3, 4, 6, 3})),
        bottleneck(is_bottleneck(config)),
        downsample_in_first_stage(config.boolean("downsample_in_first_stage", false)),
        downsample_in_bottleneck(config.boolean("downsample_in_bottleneck", false)),
        activation(nn::activation(config.string("hidden_act", "relu"))) {
    check_common_config(config);
    if (hidden.empty() || hidden.size() != depths.size())
      throw ConfigError("[resnet] \"hidden_sizes\" and \"depths\" must name the same stages, got " +
                        std::to_string(hidden.size()) + " and " + std::to_string(depths.size()));
    check_entries("hidden_sizes", hidden, bottleneck ? kReduction : 1);
    check_entries("depths", depths, 1);
    config.acknowledge({"out_features", "out_indices", "stage_names"});  // which stages a backbone shows
  }

  static constexpr int64_t kReduction = 4;  // how much narrower a bottleneck is than its block

 private:
  static void check_entries(const std::string& key, const std::vector<int64_t>& entries, int64_t least) {
    for (const auto entry : entries)
      if (entry < least || entry > INT32_MAX)
        throw ConfigError("[resnet] an entry of \"" + key + "\" is " + std::to_string(entry) +
                          "; it must be between " + std::to_string(least) + " and 2147483647");
  }
  static bool is_bottleneck(const Config& config) {
    const auto type = config.string("layer_type", "bottleneck");
    if (type != "basic" && type != "bottleneck")
      throw ConfigError("[resnet] \"layer_type\" is \"" + type + "\"; known: basic, bottleneck");
    return type == "bottleneck";
  }
};

/// First time through a block, or again in the backward pass by gradient checkpointing.
enum class Pass { first, recomputed };

struct ConvSpec {
  int64_t in, out, kernel, stride = 1;
  nn::Activation activation = nullptr;
};

/// Convolution, batch norm and, where the spec has one, an activation: transformers' ResNetConvLayer and
/// ResNetShortCut.
class ResNetConvLayer : public torch::nn::Module {
 public:
  ResNetConvLayer(const nn::Build& b, const ConvSpec& spec) : activation_(spec.activation) {
    const int64_t around = spec.kernel / 2;
    const nn::Conv2dShape shape{.in = spec.in,
                                .out = spec.out,
                                .kernel = {spec.kernel, spec.kernel},
                                .stride = {spec.stride, spec.stride},
                                .padding = {around, around},
                                .bias = false};
    convolution = b.child<nn::Conv2d>(*this, "convolution", shape, nn::Init{nn::Init::Kind::kaiming_fan_out});
    normalization = b.child<nn::BatchNorm2d>(*this, "normalization", spec.out);
  }

  at::Tensor forward(const at::Tensor& x, Pass pass) {
    const auto in = convolution->forward(x);
    const auto y = pass == Pass::first ? normalization->forward(in) : normalization->forward_again(in);
    return activation_ ? activation_(y) : y;
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Conv2d> convolution;
  std::shared_ptr<nn::BatchNorm2d> normalization;
};

/// The convolutions of one block. Inside it the activation is ReLU whatever "hidden_act" says, as in
/// transformers.
std::vector<ConvSpec> block_convolutions(const ResNetSizes& s, int64_t in, int64_t out, int64_t stride) {
  const auto relu = nn::activation("relu");
  if (!s.bottleneck)
    return {{.in = in, .out = out, .kernel = 3, .stride = stride, .activation = relu},
            {.in = out, .out = out, .kernel = 3}};
  const int64_t narrow = out / ResNetSizes::kReduction;
  const int64_t first = s.downsample_in_bottleneck ? stride : 1,
                second = s.downsample_in_bottleneck ? 1 : stride;
  return {{.in = in, .out = narrow, .kernel = 1, .stride = first, .activation = relu},
          {.in = narrow, .out = narrow, .kernel = 3, .stride = second, .activation = relu},
          {.in = narrow, .out = out, .kernel = 1}};
}

class ResNetBlock : public torch::nn::Module {
 public:
  ResNetBlock(const nn::Build& b, const ResNetSizes& s, int64_t in, int64_t out, int64_t stride)
      : activation_(s.activation) {
    if (in != out || stride != 1)
      shortcut = b.child<ResNetConvLayer>(*this, "shortcut",
                                          ConvSpec{.in = in, .out = out, .kernel = 1, .stride = stride});
    const auto specs = block_convolutions(s, in, out, stride);
    layer = b.child<nn::List<ResNetConvLayer>>(
        *this, "layer", static_cast<int64_t>(specs.size()),
        [&](const nn::Build& at, int64_t i) { return std::make_shared<ResNetConvLayer>(at, specs[i]); });
  }

  at::Tensor forward(const at::Tensor& x, Pass pass) {
    auto y = x;
    for (const auto& each : *layer) y = each->forward(y, pass);
    return activation_(y + (shortcut ? shortcut->forward(x, pass) : x));
  }

 private:
  nn::Activation activation_;
  std::shared_ptr<ResNetConvLayer> shortcut;
  std::shared_ptr<nn::List<ResNetConvLayer>> layer;
};

class ResNetStage : public torch::nn::Module {
 public:
  ResNetStage(const nn::Build& b, const ResNetSizes& s, int64_t stage) {
    const int64_t in = stage == 0 ? s.embedding : s.hidden[stage - 1], out = s.hidden[stage];
    const int64_t stride = stage > 0 || s.downsample_in_first_stage ? 2 : 1;
    layers =
        b.child<nn::List<ResNetBlock>>(*this, "layers", s.depths[stage], [&](const nn::Build& at, int64_t i) {
          return i == 0 ? std::make_shared<ResNetBlock>(at, s, in, out, stride)
                        : std::make_shared<ResNetBlock>(at, s, out, out, 1);
        });
  }

  at::Tensor forward(at::Tensor x, bool recompute) {
    for (const auto& block : *layers) {
      const auto run = [block, pass = std::make_shared<Pass>(Pass::first)](const at::Tensor& h) {
        return block->forward(h, std::exchange(*pass, Pass::recomputed));
      };
      x = nn::with_weights(*block, x, [&](const at::Tensor& in) {
        return recompute ? nn::checkpointed(*block, run, in) : run(in);
      });
    }
    return x;
  }

 private:
  std::shared_ptr<nn::List<ResNetBlock>> layers;
};

class ResNetEmbeddings : public torch::nn::Module {
 public:
  ResNetEmbeddings(const nn::Build& b, const ResNetSizes& s) : channels_(s.channels) {
    embedder = b.child<ResNetConvLayer>(
        *this, "embedder",
        ConvSpec{.in = s.channels, .out = s.embedding, .kernel = 7, .stride = 2, .activation = s.activation});
  }

  at::Tensor forward(const at::Tensor& pixel_values) {
    if (pixel_values.size(1) != channels_)
      throw UsageError("[resnet] pixel_values have " + std::to_string(pixel_values.size(1)) +
                       " channels; the model expects " + std::to_string(channels_));
    return at::max_pool2d(embedder->forward(pixel_values, Pass::first), 3, 2, 1);
  }

 private:
  int64_t channels_;
  std::shared_ptr<ResNetConvLayer> embedder;
};

class ResNetEncoder : public torch::nn::Module {
 public:
  ResNetEncoder(const nn::Build& b, const ResNetSizes& s) {
    stages = b.child<nn::List<ResNetStage>>(
        *this, "stages", static_cast<int64_t>(s.depths.size()),
        [&](const nn::Build& at, int64_t i) { return std::make_shared<ResNetStage>(at, s, i); });
  }

  at::Tensor forward(at::Tensor x, bool recompute) {
    for (const auto& stage : *stages) x = stage->forward(x, recompute);
    return x;
  }

 private:
  std::shared_ptr<nn::List<ResNetStage>> stages;
};

class ResNetModel : public PreTrainedModel {
 public:
  ResNetModel(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const ResNetSizes s(config);
    embedder = b.child<ResNetEmbeddings>(*this, "embedder", s);
    encoder = b.child<ResNetEncoder>(*this, "encoder", s);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ResNetModel", {"pixel_values"}, {});
    return features(inputs);
  }

  /// pooler_output is [batch, channels, 1, 1].
  ModelOutput features(const ModelInputs& inputs) {
    const auto x = embedder->forward(inputs.pixel_values.to(dtype()));
    const auto hidden = encoder->forward(x, checkpointing_ && is_training());
    return {.last_hidden_state = hidden, .pooler_output = at::adaptive_avg_pool2d(hidden, {1, 1})};
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<ResNetEmbeddings> embedder;
  std::shared_ptr<ResNetEncoder> encoder;
};

/// Named as the second of a sequence: the first, which flattens, has no weights.
class ResNetClassifier : public torch::nn::Module {
 public:
  ResNetClassifier(const nn::Build& b, int64_t in_features, int64_t labels) {
    // torch's own default for a linear layer: transformers' ResNet leaves it at that.
    const nn::Init init{nn::Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(in_features))};
    linear = b.child<nn::Linear>(*this, "1", in_features, labels, init);
  }

  at::Tensor forward(const at::Tensor& pooled) { return linear->forward(pooled.flatten(1)); }

 private:
  std::shared_ptr<nn::Linear> linear;
};

class ResNetForImageClassification : public PreTrainedModel {
 public:
  ResNetForImageClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    resnet = b.child<ResNetModel>(*this, "resnet", config);
    classifier = b.child<ResNetClassifier>(*this, "classifier", ResNetSizes(config).hidden.back(),
                                           config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ResNetForImageClassification", {"pixel_values"}, {"labels"});
    ModelOutput out{.logits = classifier->forward(resnet->features(inputs).pooler_output)};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

  void set_checkpointing(bool on) override { resnet->set_checkpointing(on); }

 private:
  std::shared_ptr<ResNetModel> resnet;
  std::shared_ptr<ResNetClassifier> classifier;
};

}  // namespace

std::vector<Architecture> resnet_architectures() {
  return {{.name = "ResNetModel",
           .model_type = "resnet",
           .task = Task::base,
           .base_prefix = "resnet",
           .make = make_model<ResNetModel>,
           .init_std_key = ""},
          {.name = "ResNetForImageClassification",
           .model_type = "resnet",
           .task = Task::image_classification,
           .base_prefix = "resnet",
           .make = make_model<ResNetForImageClassification>,
           .init_std_key = ""}};
}

}  // namespace graft
