#include "adapters/methods/xlora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "adapters/added_weight.h"
#include "adapters/methods/lora_experts.h"
#include "adapters/methods/lora_linear.h"
#include "adapters/mixture.h"
#include "adapters/targets.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

/// The classifier, and the experts while their parts are built.
class Classifier : public Mixture {
 public:
  Classifier(const AdapterConfig& config, const PreTrainedModel& model, std::vector<Target> layers,
             TensorSource& source)
      : experts(read_experts(config, model)),
        temperature_(config.number("softmax_temperature")),
        dropout_(config.number("xlora_dropout_p")),
        softmax_(config.boolean("enable_softmax")),
        by_layer_(config.boolean("layerwise_scalings")),
        first_(config.number("scaling_pass_value")),
        layers_(std::move(layers)) {
    for (auto& expert : experts)
      expert.source = std::make_shared<GivenSource>(GivenSource::open(expert.folder));
    const int64_t depth = positive(config, "xlora_depth"), width = positive(config, "xlora_size");
    const auto count = static_cast<int64_t>(experts.size());
    // A module of torch's for each product, activation and dropout: that gives the numbers in the names.
    const int64_t step = dropout_ > 0 ? 3 : 2;
    int64_t in = positive(config, "hidden_size");
    for (int64_t i = 0; i < depth; ++i) {
      const bool last = i + 1 == depth;
      const int64_t out = !last ? width : by_layer_ ? count * layer_count() : count;
      const auto name = "base_model.internal_xlora_classifier.layers." + std::to_string(i * step) + ".";
      const auto at = [&](const char* what, at::IntArrayRef shape) {
        const auto given = source.take(name + what, shape);
        const auto tensor = given.defined() ? given : fresh_tensor(name + what, shape);
        return register_parameter(std::to_string(i) + what, tensor.to(model.device()),
                                  /*requires_grad=*/false);
      };
      Product product{name, at("weight", {out, in}), at("bias", {out})};
      if (source.fresh()) {
        const at::NoGradGuard no_grad;
        const auto weight = at::empty({out, in}), bias = at::empty({out});
        as_torch_layer(weight);
        as_torch_bias(bias, weight);
        product.weight.set_data(weight.to(model.device(), model.dtype()));
        product.bias.set_data(bias.to(model.device(), model.dtype()));
      }
      products_.push_back(std::move(product));
      in = width;
    }
  }

  std::vector<Entry> entries() const override {
    std::vector<Entry> all;
    for (const auto& [name, weight, bias] : products_) {
      all.push_back({name + "weight", weight, true});
      all.push_back({name + "bias", bias, true});
    }
    return all;
  }

  at::Tensor shares(const at::Tensor& hidden) const override {
    if (hidden.size(-1) != products_[0].weight.size(1))
      throw ConfigError("[xlora] \"hidden_size\" is " + std::to_string(products_[0].weight.size(1)) +
                        ", and the model's hidden states have " + std::to_string(hidden.size(-1)) +
                        " features");
    auto x = cast_to(hidden, products_[0].weight);
    for (size_t i = 0; i < products_.size(); ++i) {
      x = at::linear(x, products_[i].weight, products_[i].bias);
      if (i + 1 < products_.size()) x = nn::dropout(at::relu(x), dropout_, is_training());
    }
    const auto count = static_cast<int64_t>(experts.size());
    x = by_layer_ ? x.unflatten(-1, {layer_count(), count})
                  : x.unsqueeze(2).expand({x.size(0), x.size(1), layer_count(), count});
    return softmax_ ? at::softmax(x / temperature_, -1) : x;
  }

  double first_share() const override { return first_; }
  at::Tensor first_shares(int64_t batch, int64_t tokens) const override {
    return at::full({batch, tokens, layer_count(), static_cast<int64_t>(experts.size())}, first_,
                    products_[0].weight.options().requires_grad(false));
  }

  void finish(const PreTrainedModel& model) override { finish_experts(experts, model); }

  int64_t layer_count() const { return static_cast<int64_t>(layers_.size()); }
  int64_t number_of(const std::string& path) const {
    return std::find_if(layers_.begin(), layers_.end(), [&](const auto& each) { return each.path == path; }) -
           layers_.begin();
  }

  std::vector<Expert> experts;

 private:
  struct Product {
    std::string name;
    at::Tensor weight, bias;
  };
  std::vector<Product> products_;
  double temperature_, dropout_;
  bool softmax_, by_layer_;
  double first_;  // of each expert in the first call
  std::vector<Target> layers_;
};

/// y += share B A x, summed over the experts that are on the layer.
class XloraPart : public Part {
 public:
  explicit XloraPart(const PartBuild& build)
      : Part(build),
        embeds_(build.layer.kind() == nn::LayerKind::embedding),
        weight_(build.config.number("global_scaling_weight")),
        softmax_(build.config.boolean("enable_softmax_topk")) {
    if (!embeds_ && !is_linear(build.layer)) build.refuse("X-LoRA is for linear layers and embeddings");
    const auto& classifier = dynamic_cast<const Classifier&>(*build.shared);
    number_ = classifier.number_of(build.path);
    if (build.config.has("top_k_lora")) most_ = positive(build.config, "top_k_lora");
    if (most_ > static_cast<int64_t>(classifier.experts.size()))
      throw ConfigError("[xlora] \"top_k_lora\" is " + std::to_string(most_) + ", and there are " +
                        std::to_string(classifier.experts.size()) + " adapters");
    for (size_t i = 0; i < classifier.experts.size(); ++i) {
      const auto& expert = classifier.experts[i];
      auto lora = expert.part(build, embeds_ ? "lora_embedding_A" : "lora_A.weight");
      if (!lora) continue;
      register_module("expert" + std::to_string(i), lora);
      experts_.push_back({static_cast<int64_t>(i), expert.config.number("lora_dropout"), std::move(lora)});
    }
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    if (!gate.shares().defined())
      throw UsageError(
          "[xlora] X-LoRA's layers work in calls of the model with its adapters, not of its base");
    const auto shares = chosen(gate.part(gate.shares()).select(2, number_));
    const auto in = gate.part(x);
    at::Tensor sum;
    for (const auto& [number, dropout, lora] : experts_) {
      const auto share = shares.select(-1, number).unsqueeze(-1);
      const auto made = (embeds_ ? embedded(*lora, in, share) : product(*lora, in, share, dropout)) *
                        lora->scale_factor() * weight_;
      sum = sum.defined() ? sum + made : made;
    }
    return gate.add(y, sum);
  }

  bool can_take(const Part& other) const override {
    const auto* xlora = dynamic_cast<const XloraPart*>(&other);
    return xlora && Part::can_take(other) &&
           std::equal(experts_.begin(), experts_.end(), xlora->experts_.begin(), xlora->experts_.end(),
                      [](const Placed& a, const Placed& b) {
                        return a.number == b.number && a.dropout == b.dropout;
                      });
  }

  void merge(Weights& /*weights*/) const override {
    throw UsageError(
        "[xlora] X-LoRA chooses among its adapters token by token and cannot be merged into the weights: "
        "keep it "
        "as an adapter");
  }

 private:
  struct Placed {
    int64_t number;
    double dropout;
    std::shared_ptr<LoraPart> lora;
  };

  at::Tensor product(const LoraPart& lora, const at::Tensor& x, const at::Tensor& share,
                     double dropout) const {
    if (x.dim() != 3) throw UsageError("[xlora] X-LoRA takes rows of tokens, [batch, seq, features]");
    const auto in = nn::dropout(cast_to(x, lora.A) * share, dropout, is_training());
    return at::linear(at::linear(cast_to(in, lora.A), lora.A), lora.B, lora.B_bias);
  }

  static at::Tensor embedded(const LoraPart& lora, const at::Tensor& ids, const at::Tensor& share) {
    const auto padding = dynamic_cast<const nn::Embedding&>(lora.layer()).padding_idx();
    return at::matmul(at::embedding(lora.A.t(), ids, padding) * share, lora.B.t());
  }

  /// [rows, tokens, experts] of this layer: all, or only each token's largest.
  at::Tensor chosen(at::Tensor shares) const {
    if (most_ > 0) {
      const auto largest = std::get<1>(shares.topk(most_, -1));
      shares = shares * at::zeros_like(shares).scatter(-1, largest, 1);
    }
    if (!softmax_) return shares;
    const auto none = shares == 0;
    return at::softmax(shares.masked_fill(none, -std::numeric_limits<double>::infinity()), -1)
        .masked_fill(none, 0);
  }

  bool embeds_;
  double weight_;
  bool softmax_;
  int64_t number_ = 0, most_ = 0;
  std::vector<Placed> experts_;
};

std::vector<Target> layers_of_experts(const AdapterConfig& config, const PreTrainedModel& model) {
  std::map<std::string, bool> named;
  for (const auto& expert : read_experts(config, model))
    for (const auto& target : adapted_layers(expert.config, model)) named[target.path] = true;
  std::vector<Target> layers;
  for (const auto& target : weighted_layers(model))
    if (named.contains(target.path)) layers.push_back(target);
  return layers;
}

void check_xlora(const AdapterConfig& config) {
  const auto adapters = nlohmann::json::parse(config.text("adapters"));
  const auto fits = [](const auto& each) { return each.is_string(); };
  if (!adapters.is_object() || adapters.empty() || !std::all_of(adapters.begin(), adapters.end(), fits))
    throw ConfigError(
        "[xlora] \"adapters\" must name folders of LoRA adapters, {\"0\": \"path\", ...}, got " +
        adapters.dump());
  for (const char* field : {"hidden_size", "xlora_depth", "xlora_size"}) positive(config, field);
  if (config.number("softmax_temperature") == 0)
    throw ConfigError("[xlora] \"softmax_temperature\" must not be 0");
  if (config.boolean("use_trainable_adapters"))
    log_warning(
        "[xlora] \"use_trainable_adapters\" trains the adapters too in PEFT, which does not save them; here "
        "they "
        "stay as they are");
}

}  // namespace

Method xlora_method() {
  return {.type = "XLORA",
          .fields = {{"hidden_size", 4096},
                     {"adapters", nlohmann::json::object(), {}, Field::Rule::any},
                     {"enable_softmax", true},
                     {"enable_softmax_topk", false},
                     {"layerwise_scalings", false},
                     {"xlora_depth", 1},
                     {"xlora_size", 2048},
                     {"xlora_dropout_p", 0.2},
                     {"use_trainable_adapters", false},
                     {"softmax_temperature", 1.0},
                     {"top_k_lora", nullptr, {}, Field::Rule::any},
                     {"scaling_pass_value", 0.0},
                     {"global_scaling_weight", 1.0}},
          .lacks = {"target_modules", "exclude_modules", "modules_to_save", "layers_to_transform",
                    "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<XloraPart>(build);
          },
          .check = check_xlora,
          .layers = layers_of_experts,
          .mixture = [](const AdapterConfig& config, const PreTrainedModel& model,
                        const std::vector<Target>& layers, TensorSource& source) -> std::shared_ptr<Mixture> {
            return std::make_shared<Classifier>(config, model, layers, source);
          },
          .draws = [](const AdapterConfig&) { return Draws::in_training; },
          .data_fields = {"adapters", "use_trainable_adapters", "xlora_size"}};
}

}  // namespace graft::adapters
