#include "adapters/methods/lora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/methods/arrow.h"
#include "adapters/methods/lora_init.h"
#include "adapters/methods/lora_parameter.h"
#include "adapters/methods/lora_variants.h"
#include "graft/error.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

class LoraConv : public LoraPart {
 public:
  explicit LoraConv(const PartBuild& build)
      : LoraPart(build), shape_(dynamic_cast<const nn::Conv2d&>(build.layer).shape()) {
    A = parameter(build, "lora_A.weight", {r_, shape_.in, shape_.kernel[0], shape_.kernel[1]});
    B = parameter(build, "lora_B.weight", {shape_.out, r_, 1, 1});
    if (build.config.boolean("lora_bias")) B_bias = parameter(build, "lora_B.bias", {shape_.out});
    if (build.config.boolean("use_dora"))
      magnitude = parameter(build, "lora_magnitude_vector", {1, shape_.out, 1, 1});
    finish(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    const auto part = cast_to(gate.part(x), A);
    if (magnitude.defined()) return gate.put(y, dora(part, gate.part(y)));
    return gate.add(y, low_rank(dropped(part)) * scaling_);
  }

 protected:
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override {
    return at::mm(b.view({-1, r_}), a.reshape({r_, -1}))
        .view({shape_.out, shape_.in, shape_.kernel[0], shape_.kernel[1]});
  }
  at::Tensor factor_view(const at::Tensor& factor) const override { return factor.view({-1, 1, 1, 1}); }

 private:
  at::Tensor low_rank(const at::Tensor& x) const {
    return at::conv2d(at::conv2d(x, A, {}, shape_.stride, shape_.padding), B, B_bias);
  }
  at::Tensor dora(const at::Tensor& x, const at::Tensor& y) const {
    const auto factor = dora_factor();
    const auto in = dropped(x);
    const bool drops = dropout_ > 0 && is_training();
    const auto base =
        drops ? at::conv2d(in, layer().weight.to(in.scalar_type()), {}, shape_.stride, shape_.padding)
              : (layer().bias.defined() ? y - layer().bias.view({1, -1, 1, 1}) : y);
    return y + (factor - 1) * base + factor * low_rank(in) * scaling_;
  }

  nn::Conv2dShape shape_;
};

/// PEFT has no dropout on embeddings.
class LoraEmbedding : public LoraPart {
 public:
  explicit LoraEmbedding(const PartBuild& build)
      : LoraPart(build), padding_idx_(dynamic_cast<const nn::Embedding&>(build.layer).padding_idx()) {
    if (build.config.boolean("lora_bias")) build.refuse("\"lora_bias\" has no meaning for embeddings");
    A = parameter(build, "lora_embedding_A", {r_, build.in_features()});
    B = parameter(build, "lora_embedding_B", {build.out_features(), r_}, trains_b(build));
    if (build.config.boolean("use_dora"))
      magnitude = parameter(build, "lora_magnitude_vector", {build.out_features()});
    finish(build);
  }

  at::Tensor forward(const at::Tensor& ids, const Next& next, const Gate& gate) override {
    auto y = next(ids);
    const auto delta = at::matmul(at::embedding(A.t(), gate.part(ids), padding_idx_), B.t()) * scaling_;
    if (!magnitude.defined()) return gate.add(y, delta);
    const auto factor = dora_factor();
    return gate.put(y, factor * gate.part(y) + factor * delta);
  }

 protected:
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override { return at::matmul(b, a).t(); }
  at::Tensor factor_view(const at::Tensor& factor) const override { return factor.view({1, -1}); }

 private:
  int64_t padding_idx_;
};

std::shared_ptr<Part> lora_part(const PartBuild& build) {
  check_variant_fits(build);
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
    case nn::LayerKind::conv1d:
      return lora_linear_part(build);
    case nn::LayerKind::conv2d:
      return std::make_shared<LoraConv>(build);
    case nn::LayerKind::embedding:
      return std::make_shared<LoraEmbedding>(build);
    default:
      build.refuse("LoRA is for linear, convolution and embedding layers");
  }
}

}  // namespace

at::Tensor dora_norm(const nn::WeightedLayer& layer, const at::Tensor& weight) {
  switch (layer.kind()) {
    case nn::LayerKind::conv2d:
      return at::linalg_vector_norm(weight, 2, at::IntArrayRef{1, 2, 3}, /*keepdim=*/true).transpose(0, 1);
    case nn::LayerKind::embedding:
      return at::linalg_vector_norm(weight, 2, at::IntArrayRef{0});
    default:
      return at::linalg_vector_norm(out_in(layer, weight), 2, at::IntArrayRef{1});
  }
}

LoraPart::LoraPart(const PartBuild& build) : Part(build) {
  r_ = static_cast<int64_t>(build.by_pattern("rank_pattern", static_cast<double>(build.config.integer("r"))));
  if (r_ <= 0)
    throw ConfigError("[adapters] \"r\" must be at least 1, got " + std::to_string(r_) + " for \"" +
                      build.path + "\"");
  const double alpha = build.by_pattern("alpha_pattern", build.config.number("lora_alpha"));
  const auto rank = static_cast<double>(r_);
  scaling_value_ = alpha / (build.config.boolean("use_rslora") ? std::sqrt(rank) : rank);
  dropout_ = build.config.number("lora_dropout");
  scaling_ = constant("scaling", at::scalar_tensor(scaling_value_, build.options()));
  if (build.config.boolean("lora_bias") && !build.layer.bias.defined())
    log_warning("[adapters] \"lora_bias\" is set and \"" + build.path +
                "\" has no bias: such an adapter cannot be merged");
}

void LoraPart::finish(const PartBuild& build) {
  if (!build.fresh()) {
    restore_lora_base(*this, build);
    return;
  }
  initialise_lora(*this, build);
  if (magnitude.defined())
    magnitude.copy_(dora_norm(layer(), layer().weight.to(at::kFloat) + delta_weight()));
}

at::Tensor LoraPart::dropped(const at::Tensor& x) const { return nn::dropout(x, dropout_, is_training()); }

at::Tensor LoraPart::norm_of_sum() const {
  const at::NoGradGuard constant;
  return dora_norm(layer(), layer().weight.to(A.scalar_type()) + delta_weight());
}

at::Tensor LoraPart::dora_factor() const { return magnitude / norm_of_sum(); }

void LoraPart::take_out(const at::Tensor& a, const at::Tensor& b) {
  taken_A_ = constant("taken_A", a);
  taken_B_ = constant("taken_B", b);
}

bool LoraPart::trains_a(const PartBuild& build) { return !is_arrow(build.config); }
bool LoraPart::trains_b(const PartBuild& build) { return !is_mica(build.config) && !is_arrow(build.config); }

bool LoraPart::can_take(const Part& other) const {
  const auto* lora = dynamic_cast<const LoraPart*>(&other);
  // What was taken out goes along, which has no room for another rank.
  if (lora && (taken_A_.defined() || lora->taken_A_.defined()))
    return dropout_ == lora->dropout_ && Part::can_take(other);
  const auto trains = [](const Entry& a, const Entry& b) { return a.trainable == b.trainable; };
  if (!lora || typeid(*this) != typeid(other) || lora->rank() > rank() ||
      !std::equal(entries().begin(), entries().end(), lora->entries().begin(), lora->entries().end(),
                  trains) ||
      A.sizes().slice(1) != lora->A.sizes().slice(1) || B.size(0) != lora->B.size(0) ||
      dropout_ != lora->dropout_)
    return false;
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() &&
           (!a.defined() || (a.scalar_type() == b.scalar_type() && a.device() == b.device()));
  };
  return same(A, lora->A) && same(B, lora->B) && same(B_bias, lora->B_bias) &&
         same(magnitude, lora->magnitude);
}

void LoraPart::take(const Part& other) {
  const at::NoGradGuard no_grad;
  const auto& lora = dynamic_cast<const LoraPart&>(other);
  take_scaling(other);
  if (taken_A_.defined()) return Part::take(other);
  A.zero_();
  B.zero_();
  A.narrow(0, 0, r_).copy_(lora.A.narrow(0, 0, r_));
  B.narrow(1, 0, r_).copy_(lora.B.narrow(1, 0, r_));
  if (B_bias.defined()) B_bias.copy_(lora.B_bias);
  if (magnitude.defined()) magnitude.copy_(lora.magnitude);
}

void LoraPart::take_scaling(const Part& other) {
  const auto& lora = dynamic_cast<const LoraPart&>(other);
  r_ = lora.r_;
  scaling_value_ = lora.scaling_value_;
  scaling_.copy_(lora.scaling_);
}

bool LoraPart::silence() {
  if (magnitude.defined() || taken_A_.defined()) return false;
  const at::NoGradGuard no_grad;
  B.zero_();
  if (B_bias.defined()) B_bias.zero_();
  return true;
}

NamedTensors LoraPart::saved() const {
  auto tensors = Part::saved();
  for (auto& [key, tensor] : tensors) {
    if (tensor.is_same(A)) tensor = A.narrow(0, 0, r_);
    if (tensor.is_same(B)) tensor = B.narrow(1, 0, r_);
  }
  return tensors;
}

bool LoraPart::scale(double factor) {
  scaling_value_ *= factor;
  scaling_.fill_(scaling_value_);
  return true;
}

at::Tensor LoraPart::delta_weight() const {
  const bool half = A.scalar_type() == at::kHalf || A.scalar_type() == at::kBFloat16;
  const auto wide = [&](const at::Tensor& t) { return half ? t.to(at::kFloat) : t; };
  const auto [a, b] = factors();
  auto delta = product(wide(a), wide(b)) * scaling_;
  if (taken_A_.defined()) delta = delta - product(taken_A_, taken_B_);
  return half ? delta.to(A.scalar_type()) : delta;
}

void LoraPart::merge(Weights& weights) const {
  const auto delta = delta_weight();
  const auto dtype = weights.weight.scalar_type();
  if (magnitude.defined()) {
    const auto factor = factor_view(magnitude / dora_norm(layer(), weights.base + delta));
    weights.weight = (factor * (weights.weight + delta)).to(dtype);
  } else {
    weights.weight = weights.weight + delta.to(dtype);
  }
  if (!B_bias.defined()) return;
  if (!weights.bias.defined())
    throw UsageError("[adapters] an adapter with \"lora_bias\" cannot be merged into a layer without a bias");
  weights.bias = weights.bias + (B_bias * scaling_).to(dtype);
}

std::vector<Field> unsupported_lora_fields() {
  using Rule = Field::Rule;
  return {{"megatron_config", nullptr, {}, Rule::default_only},
          {"megatron_core", "megatron.core", {}, Rule::any}};
}

std::vector<std::pair<int64_t, int64_t>> repeated_layers(const AdapterConfig& config) {
  if (config.peft_type() != "LORA" || !config.has("layer_replication")) return {};
  std::vector<std::pair<int64_t, int64_t>> ranges;
  const auto given = nlohmann::json::parse(config.text("layer_replication"));
  for (const auto& range : given.is_array() ? given : nlohmann::json::array({nullptr})) {
    const auto whole = [](const nlohmann::json& each) { return each.is_number_integer(); };
    if (!range.is_array() || range.size() != 2 || !std::all_of(range.begin(), range.end(), whole))
      throw ConfigError("[lora] \"layer_replication\" must be a list of pairs of layers' numbers, got " +
                        given.dump());
    ranges.emplace_back(range[0], range[1]);
  }
  return ranges;
}

Method lora_method() {
  using Rule = Field::Rule;
  std::vector<Field> fields{{"r", 8},
                            {"lora_alpha", 8.0},
                            {"lora_dropout", 0.0},
                            {"fan_in_fan_out", false},
                            {"bias", "none", {"none", "all", "lora_only"}},
                            {"use_rslora", false},
                            {"use_dora", false},
                            {"lora_bias", false},
                            {"init_lora_weights", true, {}, Rule::any},
                            {"rank_pattern", nlohmann::json::object()},
                            {"alpha_pattern", nlohmann::json::object()},
                            {"trainable_token_indices", nullptr, {}, Rule::any},
                            {"ensure_weight_tying", false},  // build_adapter() looks at it
                            {"target_parameters", nullptr, {}, Rule::any},
                            {"layer_replication", nullptr, {}, Rule::any}};
  for (const auto& more : {lora_start_fields(), lora_variant_fields(), unsupported_lora_fields()})
    fields.insert(fields.end(), more.begin(), more.end());
  return {.type = "LORA",
          .fields = std::move(fields),
          .part = lora_part,
          .default_targets = usual_targets(),
          .targets = with_layers_of_experts,
          .check =
              [](const AdapterConfig& config) {
                check_lora_init(config);
                check_lora_variants(config);
                check_target_parameters(config);
                repeated_layers(config);
              },
          .named_weights = named_weights,
          .weight_part = lora_parameter_part,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>&,
                       TensorSource&) { return arrow_experts(config); },
          .draws =
              [](const AdapterConfig& config) {
                return draws_in_training(config) ? Draws::in_training : Draws::never;
              },
          .located = with_folders,
          .data_fields = {"r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora",
                          "init_lora_weights", "bias", "fan_in_fan_out", "ensure_weight_tying",
                          "loftq_config", "eva_config", "corda_config", "lora_ga_config",
                          "alora_invocation_tokens", "kasa_config", "arrow_config"}};
}

}  // namespace graft::adapters
