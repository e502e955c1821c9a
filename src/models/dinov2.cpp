#include "models/dinov2.h"

#include <ATen/ATen.h>

#include <cmath>

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

struct Dinov2Sizes {
  int64_t hidden, heads, head_dim, layers, intermediate, channels;
  HeightWidth image, patch;
  double eps, hidden_dropout, attention_dropout, drop_path, layerscale;
  bool qkv_bias, gated, mask_token;
  nn::Activation activation;

  explicit Dinov2Sizes(const Config& config)
      : hidden(config.size("hidden_size", 768)),
        heads(config.size("num_attention_heads", 12)),
        head_dim(config.size("head_dim", hidden / heads)),
        layers(layer_count(config, "num_hidden_layers", 12)),
        intermediate(hidden * config.size("mlp_ratio", 4)),
        channels(config.size("num_channels", 3)),
        image(config.height_width("image_size", 224)),
        patch(config.height_width("patch_size", 14)),
        eps(norm_eps(config, "layer_norm_eps", 1e-6)),
        hidden_dropout(nn::dropout_rate(config, "hidden_dropout_prob", 0.0)),
        attention_dropout(nn::dropout_rate(config, "attention_probs_dropout_prob", 0.0)),
        drop_path(nn::dropout_rate(config, "drop_path_rate", 0.0)),
        layerscale(config.number("layerscale_value", 1.0)),
        qkv_bias(config.boolean("qkv_bias", true)),
        gated(config.boolean("use_swiglu_ffn", false)),
        mask_token(config.boolean("use_mask_token", true)),
        activation(nn::activation(config.string("hidden_act", "gelu"))) {
    check_common_config(config);
    if (image[0] < patch[0] || image[1] < patch[1])
      throw ConfigError("[dinov2] \"image_size\" (" + shown(image) + ") is smaller than \"patch_size\" (" +
                        shown(patch) + ")");
    // Which feature maps a backbone shows, and how.
    config.acknowledge(
        {"apply_layernorm", "out_features", "out_indices", "reshape_hidden_states", "stage_names"});
  }

  int64_t patches() const { return (image[0] / patch[0]) * (image[1] / patch[1]); }
  /// Two thirds of an ungated one's, rounded up to a multiple of 8.
  int64_t gated_intermediate() const { return (intermediate * 2 / 3 + 7) / 8 * 8; }
};

class Dinov2Embeddings : public torch::nn::Module {
 public:
  Dinov2Embeddings(const nn::Build& b, const Dinov2Sizes& s) : patch_(s.patch), dropout_(s.hidden_dropout) {
    // Of a normal distribution cut at a hundred standard deviations, so not cut at all.
    cls_token = b.parameter(*this, "cls_token", {1, 1, s.hidden}, b.normal());
    // Stands for patches that pretraining hides; nothing here does.
    if (s.mask_token) b.parameter(*this, "mask_token", {1, s.hidden}, {nn::Init::Kind::zeros});
    position_embeddings =
        b.parameter(*this, "position_embeddings", {1, s.patches() + 1, s.hidden}, b.normal());
    patch_embeddings = b.child<PatchEmbeddings>(*this, "patch_embeddings", s.channels, s.hidden, s.patch);
  }

  at::Tensor forward(const at::Tensor& pixel_values) {
    const auto patches = patch_embeddings->forward(pixel_values);
    const auto positions = positions_for(pixel_values.size(2), pixel_values.size(3));
    const auto x = at::cat({cls_token.expand({patches.size(0), -1, -1}), patches}, 1) + positions;
    return nn::dropout(x, dropout_, is_training());
  }

 private:
  /// The table of a square image, stretched to the image at hand: also to one of as many patches that is not
  /// square, as in transformers.
  at::Tensor positions_for(int64_t height, int64_t width) const {
    const int64_t rows = height / patch_[0], columns = width / patch_[1];
    const int64_t count = position_embeddings.size(1) - 1;
    if (rows * columns == count && height == width) return position_embeddings;
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(count)));
    if (side * side != count)
      throw UsageError("[dinov2] an image of " + shown({height, width}) + " needs the model's " +
                       std::to_string(count) + " positions stretched, which must be a square number");
    const auto of_class = position_embeddings.slice(1, 0, 1);
    const auto table = position_embeddings.slice(1, 1).reshape({1, side, side, -1}).permute({0, 3, 1, 2});
    // Resampled in float32: in half precision the positions would shift.
    const auto stretched =
        at::upsample_bicubic2d(table.to(at::kFloat), {rows, columns}, /*align_corners=*/false)
            .to(table.scalar_type());
    return at::cat({of_class, stretched.flatten(2).transpose(1, 2)}, 1);
  }

  HeightWidth patch_;
  double dropout_;
  at::Tensor cls_token, position_embeddings;
  std::shared_ptr<PatchEmbeddings> patch_embeddings;
};

class Dinov2LayerScale : public torch::nn::Module {
 public:
  Dinov2LayerScale(const nn::Build& b, const Dinov2Sizes& s) {
    lambda1 = b.parameter(*this, "lambda1", {s.hidden}, {nn::Init::Kind::constant, s.layerscale});
  }
  at::Tensor forward(const at::Tensor& x) const { return x * lambda1; }

 private:
  at::Tensor lambda1;
};

class Dinov2SwiGLUFFN : public torch::nn::Module {
 public:
  Dinov2SwiGLUFFN(const nn::Build& b, const Dinov2Sizes& s) {
    const int64_t width = s.gated_intermediate();
    gate_proj = b.child<nn::Linear>(*this, "gate_proj", s.hidden, width);
    up_proj = b.child<nn::Linear>(*this, "up_proj", s.hidden, width);
    down_proj = b.child<nn::Linear>(*this, "down_proj", width, s.hidden);
  }

  at::Tensor forward(const at::Tensor& x) const {
    return down_proj->forward(at::silu(gate_proj->forward(x)) * up_proj->forward(x));
  }

 private:
  std::shared_ptr<nn::Linear> gate_proj, up_proj, down_proj;
};

class Dinov2Layer : public torch::nn::Module {
 public:
  Dinov2Layer(const nn::Build& b, const Dinov2Sizes& s) : drop_path_(s.drop_path) {
    norm1 = b.child<nn::LayerNorm>(*this, "norm1", s.hidden, s.eps);
    attention = b.child<PatchAttention>(*this, "attention",
                                        PatchAttentionShape{.hidden = s.hidden,
                                                            .heads = s.heads,
                                                            .head_dim = s.head_dim,
                                                            .qkv_bias = s.qkv_bias,
                                                            .dropout = s.attention_dropout});
    layer_scale1 = b.child<Dinov2LayerScale>(*this, "layer_scale1", s);
    norm2 = b.child<nn::LayerNorm>(*this, "norm2", s.hidden, s.eps);
    if (s.gated)
      gated_mlp = b.child<Dinov2SwiGLUFFN>(*this, "mlp", s);
    else
      mlp = b.child<PatchMLP>(*this, "mlp", s.hidden, s.intermediate, s.activation);
    layer_scale2 = b.child<Dinov2LayerScale>(*this, "layer_scale2", s);
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const auto drop = [&](const at::Tensor& y) { return nn::drop_path(y, drop_path_, is_training()); };
    const auto attended = drop(layer_scale1->forward(attention->forward(norm1->forward(x), mask))) + x;
    const auto normed = norm2->forward(attended);
    const auto fed = gated_mlp ? gated_mlp->forward(normed) : mlp->forward(normed);
    return drop(layer_scale2->forward(fed)) + attended;
  }

 private:
  double drop_path_;
  std::shared_ptr<nn::LayerNorm> norm1, norm2;
  std::shared_ptr<PatchAttention> attention;
  std::shared_ptr<Dinov2LayerScale> layer_scale1, layer_scale2;
  std::shared_ptr<PatchMLP> mlp;
  std::shared_ptr<Dinov2SwiGLUFFN> gated_mlp;
};

class Dinov2Encoder : public torch::nn::Module {
 public:
  Dinov2Encoder(const nn::Build& b, const Dinov2Sizes& s) {
    layer = b.child<nn::List<Dinov2Layer>>(*this, "layer", s.layers, [&](const nn::Build& at, int64_t) {
      return std::make_shared<Dinov2Layer>(at, s);
    });
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& mask, bool recompute) {
    return nn::through(*layer, std::move(x), recompute, mask);
  }

 private:
  std::shared_ptr<nn::List<Dinov2Layer>> layer;
};

class Dinov2Model : public PreTrainedModel {
 public:
  Dinov2Model(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    const Dinov2Sizes s(config);
    embeddings = b.child<Dinov2Embeddings>(*this, "embeddings", s);
    encoder = b.child<Dinov2Encoder>(*this, "encoder", s);
    layernorm = b.child<nn::LayerNorm>(*this, "layernorm", s.hidden, s.eps);
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "Dinov2Model", {"pixel_values"}, {"attention_mask"});
    const auto hidden = hidden_states(inputs);
    return {.last_hidden_state = hidden, .pooler_output = hidden.select(1, 0)};
  }

  at::Tensor hidden_states(const ModelInputs& inputs) {
    const auto x = embeddings->forward(inputs.pixel_values);
    const auto mask = nn::bidirectional_mask({.like = x, .attention_mask = inputs.attention_mask});
    return layernorm->forward(encoder->forward(x, mask, checkpointing_ && is_training()));
  }

  void set_checkpointing(bool on) override { checkpointing_ = on; }

 private:
  bool checkpointing_ = false;
  std::shared_ptr<Dinov2Embeddings> embeddings;
  std::shared_ptr<Dinov2Encoder> encoder;
  std::shared_ptr<nn::LayerNorm> layernorm;
};

/// By the class token and the mean of the patches.
class Dinov2ForImageClassification : public PreTrainedModel {
 public:
  Dinov2ForImageClassification(const nn::Build& b, const Config& config) : PreTrainedModel(config) {
    dinov2 = b.child<Dinov2Model>(*this, "dinov2", config);
    classifier =
        b.child<nn::Linear>(*this, "classifier", 2 * Dinov2Sizes(config).hidden, config.num_labels());
  }

  ModelOutput forward(const ModelInputs& inputs) override {
    check_inputs(inputs, "Dinov2ForImageClassification", {"pixel_values"}, {"attention_mask", "labels"});
    const auto hidden = dinov2->hidden_states(inputs);
    const auto features = at::cat({hidden.select(1, 0), hidden.slice(1, 1).mean(1)}, 1);
    ModelOutput out{.logits = classifier->forward(features)};
    if (inputs.labels.defined()) out.loss = nn::classification_loss(config(), out.logits, inputs.labels);
    return out;
  }

  void set_checkpointing(bool on) override { dinov2->set_checkpointing(on); }

 private:
  std::shared_ptr<Dinov2Model> dinov2;
  std::shared_ptr<nn::Linear> classifier;
};

}  // namespace

std::vector<Architecture> dinov2_architectures() {
  const auto row = [](std::string_view name, Task task, auto make) {
    return Architecture{.name = name,
                        .model_type = "dinov2",
                        .task = task,
                        .base_prefix = "dinov2",
                        .make = make,
                        .stored_as = {{"attention.q_proj", "attention.attention.query"},
                                      {"attention.k_proj", "attention.attention.key"},
                                      {"attention.v_proj", "attention.attention.value"},
                                      {"attention.o_proj", "attention.output.dense"},
                                      {"mlp.down_proj", "mlp.weights_out"}},
                        .stored_joined = {{{"mlp.gate_proj", "mlp.up_proj"}, "mlp.weights_in"}}};
  };
  return {row("Dinov2Model", Task::base, make_model<Dinov2Model>),
          row("Dinov2ForImageClassification", Task::image_classification,
              make_model<Dinov2ForImageClassification>)};
}

}  // namespace graft
