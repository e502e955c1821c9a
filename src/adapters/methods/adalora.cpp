#include "adapters/methods/adalora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/adapter.h"
#include "adapters/methods/adalora_budget.h"
#include "adapters/methods/lora_init.h"
#include "adapters/methods/lora_variants.h"
#include "graft/error.h"
#include "nn/conv.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// y += scaling / init_r * B diag(E) A x. Taken-away ranks have E = 0 in memory, so that the program stays
/// the same while they go; files do not hold them.
class AdaLoraPart : public Part {
 public:
  explicit AdaLoraPart(const PartBuild& build)
      : Part(build), path_(build.path), dropout_(build.config.number("lora_dropout")) {
    const int64_t initial = build.config.integer("init_r");
    r_ = initial;
    for (const auto& [name, kept] : build.config.lists("rank_pattern"))
      if (name == build.path + ".lora_E") r_ = std::count(kept.begin(), kept.end(), 1);
    if (build.layer.kind() == nn::LayerKind::conv2d)
      conv_ = dynamic_cast<const nn::Conv2d&>(build.layer).shape();
    const int64_t in = conv_ ? conv_->in * conv_->kernel[0] * conv_->kernel[1] : build.in_features();
    A = parameter(build, "lora_A", {r_, in});
    E = parameter(build, "lora_E", {r_, 1});
    B = parameter(build, "lora_B", {build.out_features(), r_});
    const double alpha = build.config.number("lora_alpha");
    // PEFT divides by the first rank, whatever is left of it.
    scaling_value_ = (alpha > 0 ? alpha : static_cast<double>(r_)) / (static_cast<double>(initial) + 1e-5);
    scaling_ = constant("scaling", at::scalar_tensor(scaling_value_, build.options()));
    if (build.fresh()) initialise(build);
    budget_ = dynamic_cast<AdaLoraBudget*>(build.shared);
    budget_->add(build.path, A, E, B);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    if (r_ == 0) return y;
    const auto part = nn::dropout(cast_to(gate.part(x), A), dropout_, is_training());
    const auto a = A * E;
    if (!conv_) return gate.add(y, at::linear(at::linear(part, a), B) * scaling_);
    const auto narrow = a.view({r_, conv_->in, conv_->kernel[0], conv_->kernel[1]});
    const auto inner = at::conv2d(part, narrow, {}, conv_->stride, conv_->padding);
    return gate.add(y, at::conv2d(inner, B.view({-1, r_, 1, 1})) * scaling_);
  }

  void merge(Weights& weights) const override {
    auto delta = at::matmul(B, A * E) * scaling_;
    if (layer().kind() == nn::LayerKind::conv1d) delta = delta.t();
    weights.weight =
        (weights.weight + delta.reshape(weights.weight.sizes())).to(weights.weight.scalar_type());
  }

  bool scale(double factor) override {
    scaling_value_ *= factor;
    scaling_.fill_(scaling_value_);
    return true;
  }

  NamedTensors saved() const override {
    auto all = Part::saved();
    const auto chosen = budget_->chosen(path_);
    if (!chosen) return all;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < chosen->size(); ++i)
      if ((*chosen)[i]) kept.push_back(static_cast<int64_t>(i));
    const auto index = at::tensor(kept, at::kLong).to(A.device());
    for (auto& [key, tensor] : all) tensor = tensor.index_select(key.ends_with("lora_B") ? 1 : 0, index);
    return all;
  }

 private:
  /// PEFT draws everything once for nothing, the number of ranks too.
  void initialise(const PartBuild& build) {
    const at::NoGradGuard no_grad;
    for (auto* tensor : {&A, &E, &B}) tensor->normal_();
    at::randn({1});
    if (!build.config.boolean("init_lora_weights")) return;
    E.zero_();
    A.normal_(0, 0.02);
    B.normal_(0, 0.02);
  }

  std::string path_;
  double dropout_, scaling_value_ = 0;
  int64_t r_ = 0;
  std::optional<nn::Conv2dShape> conv_;
  at::Tensor A, E, B, scaling_;
  AdaLoraBudget* budget_ = nullptr;  // the adapter's
};

std::shared_ptr<Part> adalora_part(const PartBuild& build) {
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
    case nn::LayerKind::conv1d:
    case nn::LayerKind::conv2d:
      return std::make_shared<AdaLoraPart>(build);
    default:
      build.refuse("AdaLoRA is for linear layers and convolutions");
  }
}

std::shared_ptr<Shared> adalora_budget(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>&,
                                       TensorSource&) {
  return std::make_shared<AdaLoraBudget>(config);
}

void check_adalora(const AdapterConfig& config) {
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw ConfigError("[adalora] " + what);
  };
  demand(config.has("total_step") && config.integer("total_step") > 0,
         "\"total_step\" must be set to the number of training steps: the budget follows it");
  demand(config.integer("init_r") >= 0, "\"init_r\" must not be negative");
  demand(config.number("orth_reg_weight") >= 0, "\"orth_reg_weight\" must not be negative");
  demand(config.integer("deltaT") > 0, "\"deltaT\" must be at least 1");
  for (const char* beta : {"beta1", "beta2"})
    demand(config.number(beta) > 0 && config.number(beta) < 1,
           "\"" + std::string(beta) + "\" must be between 0 and 1");
  demand(config.integer("tinit") < config.integer("total_step") - config.integer("tfinal"),
         "\"tinit\" and \"tfinal\" leave no step between them for the budget: lower them or raise "
         "\"total_step\"");
  config.lists("rank_pattern");
}

}  // namespace

void update_and_allocate(Adapter& adapter, int64_t step) {
  auto* budget = dynamic_cast<AdaLoraBudget*>(adapter.shared.get());
  if (!budget)
    throw UsageError("[adalora] \"" + adapter.name + "\" is " + adapter.config.peft_type() +
                     ", which has no budget to allocate");
  if (budget->update_and_allocate(step)) adapter.config = allocated_config(adapter);
}

AdapterConfig allocated_config(const Adapter& adapter) {
  const auto* budget = dynamic_cast<const AdaLoraBudget*>(adapter.shared.get());
  const auto chosen = budget ? budget->chosen() : std::map<std::string, std::vector<bool>>{};
  if (chosen.empty()) return adapter.config;
  auto pattern = nlohmann::json::object();
  for (const auto& [path, kept] : chosen) pattern[path + ".lora_E"] = kept;
  return adapter.config.with("rank_pattern", pattern.dump());
}

NamedTensors allocation_state(const Adapter& adapter) {
  const auto* budget = dynamic_cast<const AdaLoraBudget*>(adapter.shared.get());
  return budget ? budget->state() : NamedTensors{};
}

Method adalora_method() {
  std::vector<Field> fields{{"init_r", 12},
                            {"target_r", 8},
                            {"tinit", 0},
                            {"tfinal", 0},
                            {"deltaT", 1},
                            {"beta1", 0.85},
                            {"beta2", 0.85},
                            {"orth_reg_weight", 0.5},
                            {"total_step", nullptr, {}, Field::Rule::any},
                            {"rank_pattern", nullptr, {}, Field::Rule::any},
                            {"r", 8},  // of LoRA's configuration, and without effect
                            {"lora_alpha", 8.0},
                            {"lora_dropout", 0.0},
                            {"fan_in_fan_out", false},
                            {"bias", "none", {"none", "all", "lora_only"}},
                            {"init_lora_weights", true},
                            {"use_rslora", false, {}, Field::Rule::default_only},
                            {"use_dora", false, {}, Field::Rule::default_only},
                            {"lora_bias", false, {}, Field::Rule::default_only},
                            {"alpha_pattern", nlohmann::json::object(), {}, Field::Rule::default_only},
                            {"trainable_token_indices", nullptr, {}, Field::Rule::any}};
  fields.push_back({"ensure_weight_tying", false});  // build_adapter() looks at it
  for (const auto& field : unsupported_lora_fields()) fields.push_back(field);
  // LoRA's kinds of starts and its variants are none of AdaLoRA's.
  for (const char* name : {"target_parameters", "layer_replication"})
    fields.push_back({name, nullptr, {}, Field::Rule::default_only});
  for (const auto& more : {lora_start_fields(), lora_variant_fields()})
    for (const auto& field : more)
      fields.push_back({field.name, field.fallback, {}, Field::Rule::default_only});
  return {.type = "ADALORA",
          .fields = std::move(fields),
          .part = adalora_part,
          .default_targets = {{"llama", {"q_proj", "v_proj"}},
                              {"qwen2", {"q_proj", "v_proj"}},
                              {"qwen3", {"q_proj", "v_proj"}},
                              {"gemma", {"q_proj", "v_proj"}},
                              {"gemma2", {"q_proj", "v_proj"}},
                              {"gpt_neox", {"query_key_value"}},
                              {"bloom", {"query_key_value"}},
                              {"opt", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}},
                              {"gpt2", {"c_attn"}},
                              {"bert", {"query", "value"}},
                              {"roberta", {"query", "key", "value", "dense"}},
                              {"t5", {"q", "k", "v", "o", "wi", "wo"}}},
          .check = check_adalora,
          .shared = adalora_budget};
}

}  // namespace graft::adapters
