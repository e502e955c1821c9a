#include "models/vit.h"

#include "graft/error.h"
#include "models/heads.h"
#include "models/vit_layers.h"
#include "nn/checkpointing.h"
#include "nn/dropout.h"
#include "nn/loss.h"
#include "nn/mask.h"
#include "nn/norm.h"

namespace graft {
namespace {

struct ViTSizes {
  int64_t hidden, intermediate, heads, head_dim, layers, channels, pooled;
  HeightWidth image, patch;
  double eps, hidden_dropout, attention_dropout;
  bool qkv_bias;
  nn::Activation activation, pooler_activation;

  explicit ViTSizes(const Config& config)
      : hidden(config.size("hidden_size", 768)),
        intermediate(config.size("intermediate_size", 3072)),
        heads(config.size("num_attention_heads", 12)),
        head_dim(config.size("head_dim", hidden / heads)),
        layers(layer_count(config, "num_hidden_layers", 12)),
        channels(config.size("num_channels", 3)),
        pooled(config.size("pooler_output_size", 0, 0)),
        image(config.height_width("image_size", 224)),
        patch(config.height_width("patch_size", 16)),
        eps(norm_eps(config, "layer_norm_eps", 1e-12)),
        hidden_dropout(nn::dropout_rate(config, "hidden_dropout_prob", 0.0)),
        attention_dropout(nn::dropout_rate(config, "attention_probs_dropout_prob", 0.0)),
        qkv_bias(config.boolean("qkv_bias", true)),
        activation(nn::activation(config.string("hidden_act", "gelu"))),
        pooler_activation(nn::activation(config.string("pooler_act", "tanh"), "pooler_act")) {
    check_common_config(config);
    if (pooled == 0) pooled = hidden;
    if (image[0] < patch[0] || image[1] < patch[1])
      throw ConfigError("[vit] \"image_size\" (" + shown(image) + ") is smaller than \"patch_size\" (" +
                        shown(patch) + ")");
    config.acknowledge({"encoder_stride"});  // of the masked-image head
  }

  int64_t patches() const { return (image[0] / patch[0]) * (image[1] / patch[1]); }
};

class ViTEmbeddings : public torch::nn::Module {
 public:
  ViTEmbeddings(const nn::Build& b, const ViTSizes& s) : image_(s.image), dropout_(s.hidden_dropout) {
    // transformers draws these from a normal distribution cut at -2 and 2: a hundred standard deviations, so
    // not cut at all.
    cls_token = b.parameter(*this, "cls_token", {1, 1, s.hidden}, b.normal());
    position_embeddings =
        b.parameter(*this, "position_embeddings", {1, s.patches() + 1, s.hidden}, b.normal());
    patch_embeddings = b.child<PatchEmbeddings>(*this, "patch_embeddings", s.channels, s.hidden, s.patch);
  }

  at::Tensor forward(const at::Tensor& pixel_values) {
    const HeightWidth got{pixel_values.size(2), pixel_values.size(3)};
    if (got != image_)
      throw UsageError("[vit] pixel_values are " + shown(got) + " (height x width); the model expects " +
                       shown(image_));
    const auto patches = patch_embeddings->forward(pixel_values);
    const auto x = at::cat({cls_token.expand({patches.size(0), -1, -1}), patches}, 1) + position_embeddings;
    return nn::dropout(x, dropout_, is_training());
  }

 private:
  HeightWidth image_;
  double dropout_;
  at::Tensor cls_token, position_embeddings;
  std::shared_ptr<PatchEmbeddings> patch_embeddings;
};

class ViTLayer : public torch::nn::Module {
 public:
  ViTLayer(const nn::Build& b, const ViTSizes& s) : dropout_(s.hidden_dropout) {
    attention = b.child<PatchAttention>(*this, "attention",
                                        PatchAttentionShape{.hidden = s.hidden,
                                                            .heads = s.heads,
                                                            .head_dim = s.head_dim,
                                                            .qkv_bias = s.qkv_bias,
                                                            .dropout = s.attention_dropout});
    layernorm_before = b.child<nn::LayerNorm>(*this, "layernorm_before", s.hidden, s.eps);
    layernorm_after = b.child<nn::LayerNorm>(*this, "layernorm_after", s.hidden, s.eps);
    mlp = b.child<PatchMLP>(*this, "mlp", s.hidden, s.intermediate, s.activation);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto drop = [&](const at::Tensor& y) { return nn::dropout(y, dropout_, is_training()); };
    const auto attended = drop(attention->forward(layernorm_before->forward(x), mask)) + x;
    return drop(mlp->forward(layernorm_after->forward(attended))) + attended;
  }

 private:
  double dropout_;
  std::shared_ptr<PatchAttention> attention;
  std::shared_ptr<nn::LayerNorm> layernorm_before, layernorm_after;
  std::shared_ptr<PatchMLP> mlp;
};

class ViTPooler : public torch::nn::Module {
 public:
  ViTPooler(const nn::Build& b, const ViTSizes& s) : activation_(s.pooler_activation) {
    dense = b.child<nn::Linear>(*this, "dense", s.hidden, s.pooled);
  }

  at::Tensor forward(const at::Tensor& hidden) { return activation_(dense->forward(hidden.select(1, 0))); }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Linear> dense;
};

class ViTModel : public PreTrainedModel {
 public:
  ViTModel(const nn::Build& b, const Config& config, bool with_pooler = true) : PreTrainedModel(config) {
    const ViTSizes s(config);
    embeddings = b.child<ViTEmbeddings>(*this, "embeddings", s);
    layers = b.child<nn::List<ViTLayer>>(*this, "layers", s.layers, [&](const nn::Build& at, int64_t) {
      return std::make_shared<ViTLayer>(at, s);
    });
    layernorm = b.child<nn::LayerNorm>(*this, "layernorm", s.hidden, s.eps);
    if (with_pooler) pooler = b.child<ViTPooler>(*this, "pooler", s);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ViTModel", {"pixel_values"}, {"attention_mask"});
    const auto hidden = hidden_states(inputs);
    return {.last_hidden_state = hidden, .pooler_output = pooler->forward(hidden)};
  }

  at::Tensor hidden_states(const ModelInputs& inputs) {
    auto x = embeddings->forward(inputs.pixel_values);
    const auto mask = nn::bidirectional_mask({.like = x, .attention_mask = inputs.attention_mask});
    const bool recompute = checkpointing_ && is_training();
    x = nn::through(*layers, std::move(x), recompute, mask);
    return layernorm->forward(x);
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<ViTEmbeddings> embeddings;
  std::shared_ptr<nn::List<ViTLayer>> layers;
  std::shared_ptr<nn::LayerNorm> layernorm;
  std::shared_ptr<ViTPooler> pooler;
};

class ViTForImageClassification : public PreTrainedModel {
 public:
  ViTForImageClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    vit = b.child<ViTModel>(*this, "vit", config, /*with_pooler=*/false);
    classifier = b.child<nn::Linear>(*this, "classifier", ViTSizes(config).hidden, config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "ViTForImageClassification", {"pixel_values"}, {"attention_mask", "labels"});
    ModelOutput out{.logits = classifier->forward(vit->hidden_states(inputs).select(1, 0))};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

  void set_checkpointing(bool on) override { vit->set_checkpointing(on); }

 private:
  std::shared_ptr<ViTModel> vit;
  std::shared_ptr<nn::Linear> classifier;
};

}  // namespace

std::vector<Architecture> vit_architectures() {
  const std::vector<std::pair<std::string, std::string>> stored_as{
      {"layers", "encoder.layer"},
      {"attention.q_proj", "attention.attention.query"},
      {"attention.k_proj", "attention.attention.key"},
      {"attention.v_proj", "attention.attention.value"},
      {"attention.o_proj", "attention.output.dense"},
      {"mlp.fc1", "intermediate.dense"},
      {"mlp.fc2", "output.dense"}};
  return {{.name = "ViTModel",
           .model_type = "vit",
           .task = Task::base,
           .base_prefix = "vit",
           .make = make_model<ViTModel>,
           .stored_as = stored_as},
          {.name = "ViTForImageClassification",
           .model_type = "vit",
           .task = Task::image_classification,
           .base_prefix = "vit",
           .make = make_model<ViTForImageClassification>,
           .stored_as = stored_as,
           // A body's checkpoint has a pooler, which the classifier doesn't use.
           .obsolete = {"pooler.dense.weight", "pooler.dense.bias"}}};
}

}  // namespace graft
