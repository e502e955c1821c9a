#include "adapters/methods/ia3.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "support/regex.h"

namespace graft::adapters {
namespace {

/// PEFT matches the end of the path, not whole names.
bool is_feedforward(const AdapterConfig& config, const std::string& path) {
  const auto modules = config.modules("feedforward_modules");
  if (modules.pattern())
    return Regex(*modules.pattern(), "[adapters] \"feedforward_modules\"").matches_all(path);
  return std::any_of(modules.names().begin(), modules.names().end(),
                     [&](const std::string& name) { return path.ends_with(name); });
}

class Ia3 : public Part {
 public:
  explicit Ia3(const PartBuild& build) : Part(build), feedforward_(is_feedforward(build.config, build.path)) {
    if (feedforward_ && build.groups() > 1)
      build.refuse("the input of a convolution in groups is not scaled");
    const int64_t features = feedforward_ ? build.in_features() : build.out_features();
    if (build.layer.kind() == nn::LayerKind::conv2d)
      factors_ = parameter(build, "ia3_l", {1, features, 1, 1});
    else if (feedforward_)
      factors_ = parameter(build, "ia3_l", {1, features});
    else
      factors_ = parameter(build, "ia3_l", {features, 1});
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    factors_.normal_();  // PEFT draws them, wanted or not: what is drawn next depends on it
    if (build.config.boolean("init_ia3_weights")) factors_.fill_(1);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    if (feedforward_) return next(gate.put(x, gate.part(x) * by_channel()));
    const auto y = next(x);
    return gate.put(y, gate.part(y) * by_channel());
  }

  void merge(Weights& weights) const override {
    const auto dtype = weights.weight.scalar_type();
    weights.weight = (weights.weight * factors_.view(weight_shape())).to(dtype);
    if (!feedforward_ && weights.bias.defined())
      weights.bias = (weights.bias * factors_.view({-1})).to(weights.bias.scalar_type());
  }

 private:
  /// In the shape that scales the layer's input or output.
  at::Tensor by_channel() const {
    return layer().kind() == nn::LayerKind::conv2d ? factors_ : factors_.view({-1});
  }

  /// Ones but where the weight has the factors' features.
  std::vector<int64_t> weight_shape() const {
    std::vector<int64_t> shape(static_cast<size_t>(layer().weight.dim()), 1);
    const bool in_first = layer().kind() == nn::LayerKind::conv1d;
    shape[feedforward_ == in_first ? 0 : 1] = -1;
    return shape;
  }

  bool feedforward_;
  at::Tensor factors_;
};

std::shared_ptr<Part> ia3_part(const PartBuild& build) {
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
    case nn::LayerKind::conv1d:
    case nn::LayerKind::conv2d:
      return std::make_shared<Ia3>(build);
    default:
      build.refuse("IA3 is for linear and convolution layers");
  }
}

/// Whether some layers may have both names: "dense" is a target, and "output.dense" those of them that
/// matter.
bool is_among(const std::string& name, const ModuleNames& targets) {
  return targets.empty() || targets.pattern() ||
         std::any_of(targets.names().begin(), targets.names().end(), [&](const std::string& target) {
           return target.ends_with(name) || name.ends_with(target);
         });
}

void check_feedforward(const AdapterConfig& config) {
  const auto targets = config.modules("target_modules");
  const auto feedforward = config.modules("feedforward_modules");
  for (const auto& name : feedforward.names())
    if (!is_among(name, targets))
      throw ConfigError("[adapters] \"feedforward_modules\" names \"" + name +
                        "\", which \"target_modules\" does not: add it there, too");
}

/// PEFT's defaults, of which only those that are targets make a difference.
AdapterConfig with_feedforward(const AdapterConfig& config, std::string_view model_type,
                               const TensorSource&) {
  static const DefaultTargets defaults{{"llama", {"down_proj"}},
                                       {"mistral", {"down_proj"}},
                                       {"qwen2", {"down_proj"}},
                                       {"qwen3", {"down_proj"}},
                                       {"gemma", {"down_proj"}},
                                       {"gemma2", {"down_proj"}},
                                       {"opt", {"fc2"}},
                                       {"gpt2", {"mlp.c_proj"}},
                                       {"gpt_neox", {"dense_4h_to_h"}},
                                       {"bloom", {"mlp.dense_4h_to_h"}},
                                       {"falcon", {"dense_4h_to_h"}},
                                       {"bert", {"output.dense"}},
                                       {"roberta", {"output.dense"}},
                                       {"t5", {"wo"}}};
  if (config.is_list("feedforward_modules") || config.is_string("feedforward_modules")) return config;
  for (auto [type, names] : defaults) {
    if (type != model_type) continue;
    const auto targets = config.modules("target_modules");
    std::erase_if(names, [&](const std::string& name) { return !is_among(name, targets); });
    return config.with("feedforward_modules", names);
  }
  throw ConfigError("[adapters] \"feedforward_modules\" is not set, and IA3 has no default for \"" +
                    std::string(model_type) + "\": name those of the targets whose input is scaled, or []");
}

}  // namespace

Method ia3_method() {
  using Rule = Field::Rule;
  return {.type = "IA3",
          .fields = {{"feedforward_modules", nullptr, {}, Rule::any},
                     {"fan_in_fan_out", false},
                     {"init_ia3_weights", true}},
          .lacks = {"layers_to_transform", "layers_pattern"},
          .part = ia3_part,
          .default_targets = {{"llama", {"k_proj", "v_proj", "down_proj"}},
                              {"mistral", {"k_proj", "v_proj", "down_proj"}},
                              {"qwen2", {"q_proj", "v_proj", "down_proj"}},
                              {"qwen3", {"q_proj", "v_proj", "down_proj"}},
                              {"gemma", {"q_proj", "v_proj", "down_proj"}},
                              {"gemma2", {"q_proj", "v_proj", "down_proj"}},
                              {"gpt_neox", {"query_key_value", "dense_4h_to_h"}},
                              {"bloom", {"query_key_value", "mlp.dense_4h_to_h"}},
                              {"falcon", {"query_key_value", "dense_4h_to_h"}},
                              {"opt", {"q_proj", "k_proj", "fc2"}},
                              {"gpt2", {"c_attn", "mlp.c_proj"}},
                              {"bert", {"key", "value", "output.dense"}},
                              {"roberta", {"key", "value", "output.dense"}},
                              {"t5", {"k", "v", "wo"}}},
          .check = check_feedforward,
          .complete = with_feedforward};
}

}  // namespace graft::adapters
