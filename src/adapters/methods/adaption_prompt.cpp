#include "adapters/methods/adaption_prompt.h"

#include <ATen/ATen.h>

#include <cmath>

#include "adapters/targets.h"
#include "graft/error.h"
#include "nn/attention.h"
#include "nn/queries.h"

namespace graft::adapters {
namespace {

/// How a model's attention spells what an adaption prompt needs; the queries, keys and values of GPT-2 are
/// one layer.
struct Spelling {
  std::string_view model_type;
  const char *attention, *keys, *values, *output;
};

const Spelling& spelling_of(std::string_view model_type) {
  static const Spelling known[] = {{"llama", "self_attn", "k_proj", "v_proj", "o_proj"},
                                   {"mistral", "self_attn", "k_proj", "v_proj", "o_proj"},
                                   {"gpt2", "attn", "c_attn", "c_attn", "c_proj"}};
  for (const auto& each : known)
    if (each.model_type == model_type) return each;
  throw ConfigError("[adaption prompt] a model of type \"" + std::string(model_type) +
                    "\" is not supported; known: llama, mistral, gpt2");
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

/// On the attention's output layer. y += gate * attention(queries, the prompt's keys and values), through the
/// output layer once more where PEFT sends it through. The prompt's tokens have no position and see no mask.
class AdaptionPart : public Part {
 public:
  explicit AdaptionPart(const PartBuild& build) : Part(build) {
    const auto& spelling = spelling_of(build.model->config().model_type());
    const auto attention = parent_of(build.path);
    for (auto& target : weighted_layers(*build.model)) {
      if (target.path == attention + "." + spelling.keys) keys_ = target.layer;
      if (target.path == attention + "." + spelling.values) values_ = target.layer;
    }
    if (!keys_ || !values_) build.refuse("\"" + attention + "\" has no keys and values of its own");
    auto own = build;
    own.path = attention;
    const int64_t width = keys_->weight.size(keys_->kind() == nn::LayerKind::conv1d ? 0 : 1);
    const auto dtype = build.layer.weight.scalar_type();
    prompt = parameter(own, "adaption_prompt", {1, build.config.integer("adapter_len"), width}, true, dtype);
    scale_of_it = parameter(own, "adaption_gate", {1}, true, dtype);
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    prompt.normal_();
    scale_of_it.zero_();
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    const auto* all = nn::attention_queries();
    if (!all)
      throw UsageError("[adaption prompt] the attention around \"" + layer().path() + "\" shows no queries");
    const auto q = gate.part(*all);
    const int64_t dim = q.size(3);
    const auto [k, v] = prompt_keys(dim, q.size(1));
    const auto weights = at::softmax(at::matmul(q, k.transpose(2, 3).to(q.scalar_type())) /
                                         std::sqrt(static_cast<double>(dim)),
                                     -1, at::kFloat)
                             .to(q.scalar_type());
    auto added = at::matmul((scale_of_it * weights).to(q.scalar_type()), v.to(q.scalar_type()))
                     .transpose(1, 2)
                     .flatten(2);
    if (layer().kind() == nn::LayerKind::linear)
      added = layer().apply(added.to(layer().weight.scalar_type()), layer().weight, layer().bias);
    return gate.add(y, added);
  }

  void merge(Weights& /*weights*/) const override {
    throw UsageError(
        "[adaption prompt] it attends to tokens of its own and cannot be merged into the weights: keep it as "
        "an "
        "adapter");
  }

 private:
  /// [1, heads, tokens, dim] each.
  std::pair<at::Tensor, at::Tensor> prompt_keys(int64_t dim, int64_t heads) const {
    const auto of = [&](const nn::WeightedLayer& by) {
      return by.apply(cast_to(prompt, by.weight), by.weight, by.bias);
    };
    auto k = of(*keys_), v = keys_ == values_ ? k : of(*values_);
    if (keys_ == values_) {
      const auto parts = k.chunk(3, -1);
      k = parts[1];
      v = parts[2];
    }
    const auto split = [&](const at::Tensor& t) {
      const auto own = nn::split_heads(t, dim);
      return own.repeat_interleave(heads / own.size(1), 1);
    };
    return {split(k), split(v)};
  }

  std::shared_ptr<nn::WeightedLayer> keys_, values_;
  at::Tensor prompt, scale_of_it;
};

std::vector<Target> layers_of(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto& spelling = spelling_of(model.config().model_type());
  const auto name = config.string("target_modules");
  const auto ending = "." + name + "." + spelling.output;
  std::vector<Target> found;
  for (auto& target : weighted_layers(model))
    if (target.path.ends_with(ending)) found.push_back(std::move(target));
  const int64_t wanted = config.integer("adapter_layers"), there = static_cast<int64_t>(found.size());
  if (wanted > there)
    throw ConfigError("[adaption prompt] \"adapter_layers\" is " + std::to_string(wanted) + ", and " +
                      model.architecture() + " has " + std::to_string(there) + " attentions named \"" + name +
                      "\"");
  return {found.end() - wanted, found.end()};
}

void check(const AdapterConfig& config) {
  for (const char* field : {"adapter_len", "adapter_layers"})
    if (!config.has(field) || config.integer(field) < 1)
      throw ConfigError("[adaption prompt] \"" + std::string(field) + "\" must be set, to at least 1");
  if (config.has("target_modules") && !config.is_string("target_modules"))
    throw ConfigError(
        "[adaption prompt] \"target_modules\" must be a string: the name of the attention modules");
}

AdapterConfig with_name(const AdapterConfig& config, std::string_view model_type, const TensorSource&) {
  if (config.has("target_modules")) return config;
  return config.with("target_modules", '"' + std::string(spelling_of(model_type).attention) + '"');
}

}  // namespace

Method adaption_prompt_method() {
  using Rule = Field::Rule;
  return {.type = "ADAPTION_PROMPT",
          .fields = {{"adapter_len", nullptr, {}, Rule::any}, {"adapter_layers", nullptr, {}, Rule::any}},
          .lacks = {"exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<AdaptionPart>(build);
          },
          .check = check,
          .complete = with_name,
          .layers = layers_of};
}

}  // namespace graft::adapters
