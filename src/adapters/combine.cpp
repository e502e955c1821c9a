#include "adapters/combine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "adapters/combine_targets.h"
#include "adapters/methods/lora.h"
#include "adapters/peft_state.h"
#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

constexpr std::string_view kTypes[] = {"linear",
                                       "cat",
                                       "svd",
                                       "ties",
                                       "ties_svd",
                                       "dare_linear",
                                       "dare_ties",
                                       "dare_linear_svd",
                                       "dare_ties_svd",
                                       "magnitude_prune",
                                       "magnitude_prune_svd"};

/// One layer of one adapter.
struct Factors {
  at::Tensor a, b;
  double scaling, weight;
  /// scaling B A as a matrix [out, all the rest].
  at::Tensor product() const {
    const bool half = a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
    const auto wide = [&](const at::Tensor& t) { return half ? t.to(at::kFloat) : t; };
    const auto delta = at::mm(wide(b).flatten(1), wide(a).flatten(1)) * scaling;
    return half ? delta.to(a.scalar_type()) : delta;
  }
};

struct Layer {
  std::string key_a, key_b;
  std::vector<Factors> adapters;
  /// PEFT has the product the other way round, as the layer has its weight (embeddings, Conv1D).
  bool transposed = false;
};

double scaling_at(const AdapterConfig& config, const std::string& path, int64_t rank) {
  const double alpha = value_by_pattern(config, "alpha_pattern", path, config.number("lora_alpha"));
  const auto r = static_cast<double>(rank);
  return alpha / (config.boolean("use_rslora") ? std::sqrt(r) : r);
}

void check(const WeightedSource& source) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError("[combine] \"" + source.name + "\" " + what + ", which no combination would keep");
  };
  if (source.config.peft_type() != "LORA")
    throw UsageError("[combine] \"" + source.name + "\" is " + source.config.peft_type() +
                     "; only LoRA and IA3 adapters can be combined, each with its kind");
  if (source.config.boolean("lora_bias")) refuse("has \"lora_bias\"");
  if (source.config.string("bias") != "none") refuse("brings biases of its own");
  if (source.config.has("modules_to_save")) refuse("has \"modules_to_save\"");
  for (const char* field : {"alora_invocation_tokens", "target_parameters"})
    if (source.config.has(field)) refuse("has \"" + std::string(field) + '"');
  for (const char* field :
       {"use_bdlora", "kasa_config", "velora_config", "monteclora_config", "arrow_config"})
    if (source.config.is_object(field)) refuse("has \"" + std::string(field) + '"');
  const bool on_embedding = std::any_of(source.tensors.begin(), source.tensors.end(), [](const auto& each) {
    return each.first.ends_with("lora_embedding_A");
  });
  if (source.config.boolean("ensure_weight_tying") && on_embedding)
    refuse("is one with the output layer's (\"ensure_weight_tying\")");
  if (source.config.is_string("init_lora_weights")) {
    const auto init = source.config.string("init_lora_weights");
    if (init.starts_with("pissa") || init == "olora")
      refuse("was made with \"" + init + "\" and goes with a changed base");
  }
}

/// Whether the result is DoRA. PEFT lets the first adapter decide, and drops the others' magnitudes or
/// measures them by a norm they never had: adapters of both kinds are refused here.
bool combine_as_dora(const std::vector<WeightedSource>& sources, bool with_base) {
  const bool dora = sources[0].config.boolean("use_dora");
  for (const auto& source : sources)
    if (source.config.boolean("use_dora") != dora)
      throw ConfigError("[combine] \"" + (dora ? sources[0] : source).name +
                        "\" is DoRA and another is plain LoRA: no combination would keep what both do");
  if (!dora) return false;
  if (!with_base)
    throw ConfigError(
        "[combine] DoRA's magnitudes are measured by the base's weights, which a combination needs: give the "
        "model (graft combine --model), or use add_weighted_adapter()");
  log_warning(
      "[combine] the adapters' DoRA magnitudes take no part in a combination: as in PEFT, the result has the "
      "base's");
  return true;
}

using Layers = std::map<std::string, Layer>;

/// The layers of all adapters, by path.
Layers layers_of(const std::vector<WeightedSource>& sources) {
  std::map<std::string, Layer> layers;
  constexpr std::string_view prefix = "base_model.model.";
  for (const auto& source : sources) {
    std::map<std::string, at::Tensor> by_key(source.tensors.begin(), source.tensors.end());
    size_t used = 0;
    for (const auto& [key, a] : by_key)
      for (const auto& [name_a, name_b] :
           {std::pair(".lora_A.weight", ".lora_B.weight"), {".lora_embedding_A", ".lora_embedding_B"}}) {
        if (!key.ends_with(name_a)) continue;
        const auto stem = key.substr(0, key.size() - std::string_view(name_a).size());
        const auto b = by_key.find(stem + name_b);
        if (b == by_key.end())
          throw FormatError("[combine] \"" + source.name + "\" has " + key + " and no " + stem + name_b);
        const auto path = stem.starts_with(prefix) ? stem.substr(prefix.size()) : stem;
        auto& layer = layers[path];
        layer.key_a = key;
        layer.key_b = b->first;
        layer.transposed = key.ends_with("lora_embedding_A") || source.config.boolean("fan_in_fan_out");
        if (!layer.adapters.empty() && (layer.adapters[0].a.sizes().slice(1) != a.sizes().slice(1) ||
                                        layer.adapters[0].b.size(0) != b->second.size(0)))
          throw UsageError("[combine] the adapters do not fit each other at \"" + path +
                           "\": they were made for different models");
        layer.adapters.push_back(
            {a, b->second, scaling_at(source.config, path, a.size(0)) * source.scale, source.weight});
        used += 2;
      }
    if (used == 0) throw FormatError("[combine] \"" + source.name + "\" holds no LoRA tensors");
    for (const auto& [key, tensor] : by_key)
      if (key.find(".base_layer.") == std::string::npos && key.find(".lora_") == std::string::npos &&
          !key.ends_with("embed_tokens.weight") && !key.ends_with("lm_head.weight"))
        throw FormatError("[combine] \"" + source.name + "\" holds " + key + ", which is not a LoRA tensor");
  }
  return layers;
}

/// The base's order, where there is one.
std::vector<const Layers::value_type*> in_order(const Layers& layers, const CombineBase* base) {
  std::vector<const Layers::value_type*> list;
  list.reserve(layers.size());
  for (const auto& layer : layers) list.push_back(&layer);
  if (!base) return list;
  std::map<std::string, size_t> place;
  for (const auto& path : base->order) place.emplace(path, place.size());
  const auto place_of = [&](const auto* layer) {
    const auto found = place.find(layer->first);
    return found == place.end() ? place.size() : found->second;
  };
  std::stable_sort(list.begin(), list.end(),
                   [&](const auto* a, const auto* b) { return place_of(a) < place_of(b); });
  return list;
}

class Combiner {
 public:
  Combiner(const CombineOptions& options, const std::string& type)
      : options_(options),
        svd_(type.ends_with("svd")),
        kind_(type == "svd" ? "linear"
              : svd_        ? type.substr(0, type.size() - 4)
                            : type) {
    if (kind_ == "linear" || kind_ == "cat") return;
    if (!options.density)
      throw UsageError("[combine] \"" + type + "\" needs a density: the share of values to keep, 0 to 1");
    if (!(*options.density >= 0 && *options.density <= 1))
      throw UsageError("[combine] the density must be between 0 and 1, got " +
                       std::to_string(*options.density));
  }

  bool draws() const { return kind_.starts_with("dare") && *options_.density < 1; }

  /// The factors of one layer, at most `rank` wide.
  std::pair<at::Tensor, at::Tensor> operator()(const Layer& layer, int64_t rank) const {
    if (kind_ == "cat") return side_by_side(layer);
    return svd_ ? by_svd(layer, rank) : factor_by_factor(layer);
  }

 private:
  static std::pair<at::Tensor, at::Tensor> side_by_side(const Layer& layer) {
    std::vector<at::Tensor> a, b;
    for (const auto& each : layer.adapters) {
      a.push_back(each.a * (each.weight * each.scaling));
      b.push_back(each.b);
    }
    return {at::cat(a, 0), at::cat(b, 1)};
  }

  std::pair<at::Tensor, at::Tensor> factor_by_factor(const Layer& layer) const {
    std::vector<at::Tensor> a, b;
    std::vector<double> weights_a, weights_b;
    for (const auto& each : layer.adapters) {
      if (each.a.size(0) != layer.adapters[0].a.size(0))
        throw UsageError("[combine] \"" + options_.combination_type +
                         "\" needs equal ranks in each layer, and at " + layer.key_a + " they are " +
                         std::to_string(layer.adapters[0].a.size(0)) + " and " +
                         std::to_string(each.a.size(0)) + "; \"cat\" and the \"svd\" types take any");
      // The weight goes to both factors by halves, its sign to one of them.
      const double whole = each.weight * each.scaling, root = std::sqrt(std::abs(whole));
      weights_a.push_back(whole >= 0 ? root : -root);
      weights_b.push_back(root);
      a.push_back(each.a);
      b.push_back(each.b);
    }
    return {mixed(a, weights_a).to(a[0].scalar_type()), mixed(b, weights_b).to(b[0].scalar_type())};
  }

  std::pair<at::Tensor, at::Tensor> by_svd(const Layer& layer, int64_t rank) const {
    std::vector<at::Tensor> deltas;
    std::vector<double> weights;
    for (const auto& each : layer.adapters) {
      deltas.push_back(each.product());
      weights.push_back(each.weight);
    }
    const auto& first = layer.adapters[0];
    const auto whole = mixed(deltas, weights, layer.transposed);
    auto [u, s, vh] = at::linalg_svd(whole.to(at::kFloat), /*full_matrices=*/false);
    const auto kept = std::min(rank, s.size(0));
    auto b = u.narrow(1, 0, kept) * s.narrow(0, 0, kept), a = vh.narrow(0, 0, kept);
    if (options_.svd_clamp) {
      const auto limit = at::quantile(at::cat({b.flatten(), a.flatten()}), *options_.svd_clamp);
      b = at::clamp(b, -limit, limit);
      a = at::clamp(a, -limit, limit);
    }
    auto shape_a = first.a.sizes().vec(), shape_b = first.b.sizes().vec();
    shape_a[0] = kept;
    shape_b[1] = kept;
    return {a.reshape(shape_a).to(first.a.scalar_type()), b.reshape(shape_b).to(first.b.scalar_type())};
  }

  at::Tensor pruned(const at::Tensor& tensor, bool transposed) const {
    if (kind_ == "linear" || *options_.density >= 1) return tensor;
    const double density = *options_.density;
    if (kind_.starts_with("dare")) {
      const auto stored = transposed ? tensor.t() : tensor;
      const auto kept = at::bernoulli(at::full(stored.sizes(), density, tensor.options()));
      return tensor * (transposed ? kept.t() : kept) / density;
    }
    const auto count = static_cast<int64_t>(density * static_cast<double>(tensor.numel()));
    const auto flat = tensor.abs().reshape(-1);
    const auto top = std::get<1>(at::topk(flat, count));
    return tensor * at::zeros_like(flat).index_fill(0, top, 1).view(tensor.sizes());
  }

  at::Tensor mixed(const std::vector<at::Tensor>& tensors, const std::vector<double>& weights,
                   bool transposed = false) const {
    std::vector<at::Tensor> thin;
    thin.reserve(tensors.size());
    for (const auto& tensor : tensors) thin.push_back(pruned(tensor, transposed));
    const auto stacked = at::stack(thin);
    std::vector<int64_t> shape(static_cast<size_t>(stacked.dim()), 1);
    shape[0] = -1;
    const auto weighted = stacked * at::tensor(weights, at::kFloat).view(shape);
    if (!kind_.ends_with("ties")) return weighted.sum(0);
    // Only what agrees with the majority's sign takes part, and is averaged over those that do.
    const auto sign = stacked.sign();
    const auto votes = options_.majority_sign_method == "total" ? stacked.sum(0) : sign.sum(0);
    const auto agrees = sign == at::where(votes >= 0, 1, -1);
    return (weighted * agrees).sum(0) / at::clamp_min(agrees.sum(0), 1);
  }

  const CombineOptions& options_;
  bool svd_;
  std::string kind_;
};

int64_t largest_rank(const AdapterConfig& config) {
  auto rank = config.integer("r");
  for (const auto& [pattern, value] : config.pattern("rank_pattern"))
    rank = std::max(rank, static_cast<int64_t>(value));
  return rank;
}

int64_t combined_rank(const std::vector<WeightedSource>& sources, const std::string& type,
                      const CombineOptions& options) {
  std::vector<int64_t> ranks;
  ranks.reserve(sources.size());
  for (const auto& source : sources) ranks.push_back(largest_rank(source.config));
  if (type == "cat") {
    int64_t sum = 0;
    for (const auto rank : ranks) sum += rank;
    return sum;
  }
  const auto most = *std::max_element(ranks.begin(), ranks.end());
  if (type.ends_with("svd")) return options.svd_rank.value_or(most);
  if (std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank != most; }))
    throw UsageError("[combine] \"" + type +
                     "\" needs adapters of one rank; \"cat\" and the \"svd\" types take any");
  return most;
}

at::Tensor padded(const at::Tensor& tensor, int64_t dim, int64_t size) {
  if (tensor.size(dim) == size) return tensor.contiguous();
  auto shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim)] = size - tensor.size(dim);
  return at::cat({tensor, at::zeros(shape, tensor.options())}, dim);
}

}  // namespace

AdapterConfig with_all_modules(const std::vector<WeightedSource>& sources, const AdapterConfig& config,
                               std::string_view field) {
  std::set<std::string> names;
  std::string pattern;
  for (const auto& source : sources) {
    const auto targets = source.config.modules(field);
    if (targets.pattern())
      pattern += (pattern.empty() ? "(" : "|(") + *targets.pattern() + ")";
    else
      names.insert(targets.names().begin(), targets.names().end());
  }
  if (!pattern.empty() && !names.empty())
    throw UsageError("[combine] \"" + std::string(field) +
                     "\" is a pattern for some adapters and a list for others");
  if (pattern.empty()) return config.with(field, {names.begin(), names.end()});
  return config.with(field, nlohmann::json(pattern).dump());
}

Combined combine(const std::vector<WeightedSource>& sources, const CombineOptions& options,
                 const CombineBase* base) {
  const at::NoGradGuard no_grad;
  if (sources.empty()) throw UsageError("[combine] no adapters to combine");
  if (std::find(std::begin(kTypes), std::end(kTypes), options.combination_type) == std::end(kTypes)) {
    std::string known;
    for (const auto type : kTypes) known += (known.empty() ? "" : ", ") + std::string(type);
    throw UsageError("[combine] there is no combination_type \"" + options.combination_type +
                     "\"; known: " + known);
  }
  if (options.majority_sign_method != "total" && options.majority_sign_method != "frequency")
    throw UsageError("[combine] majority_sign_method must be \"total\" or \"frequency\", got \"" +
                     options.majority_sign_method + "\"");
  if (options.svd_rank && *options.svd_rank < 1)
    throw UsageError("[combine] svd_rank must be at least 1, got " + std::to_string(*options.svd_rank));
  if (sources[0].config.peft_type() == "IA3") return combine_ia3(sources, options);
  for (const auto& source : sources) check(source);
  const bool dora = combine_as_dora(sources, base != nullptr);
  // One adapter alone can only be scaled.
  const auto type = sources.size() == 1 ? "linear" : options.combination_type;
  const Combiner combiner(options, type);
  const auto rank = combined_rank(sources, type, options);

  auto config = sources[0]
                    .config.with("r", std::to_string(rank))
                    .with("lora_alpha", std::to_string(rank))
                    .with("rank_pattern", "{}")
                    .with("alpha_pattern", "{}")
                    // Left on, as PEFT leaves it, it would make the sum sqrt(r) times too large.
                    .with("use_rslora", "false");
  Combined result{with_all_modules(sources, config, "target_modules"), {}};
  if (base && combiner.draws()) base->draw_fresh(result.config);
  auto layers = layers_of(sources);
  if (base)
    for (auto& [path, layer] : layers)
      if (const auto* adapted = base->find(path))
        layer.transposed |= adapted->kind() == nn::LayerKind::conv1d;
  if (dora && base->merged)
    throw UsageError(
        "[combine] DoRA's magnitudes are the base's, and adapters are merged into it: unmerge them first");
  for (const auto* each : in_order(layers, base)) {
    const auto& [path, layer] = *each;
    const auto [a, b] = combiner(layer, rank);
    result.tensors.emplace_back(layer.key_a, padded(a, 0, rank));
    result.tensors.emplace_back(layer.key_b, padded(b, 1, rank));
    if (!dora) continue;
    const auto* adapted = base->find(path);
    if (!adapted)
      throw UsageError("[combine] the base model has no layer \"" + path + "\": it is another one");
    const auto stem = layer.key_a.substr(0, layer.key_a.rfind(".lora_"));
    result.tensors.emplace_back(stem + ".lora_magnitude_vector",
                                dora_norm(*adapted, adapted->weight.detach().to(at::kFloat)));
  }
  return result;
}

}  // namespace graft::adapters

namespace graft {

void PeftModel::add_weighted_adapter(const std::vector<std::string>& adapters,
                                     const std::vector<double>& weights, const std::string& name,
                                     const CombineOptions& options) {
  if (adapters.size() != weights.size())
    throw UsageError("[combine] " + std::to_string(adapters.size()) + " adapters and " +
                     std::to_string(weights.size()) + " weights");
  std::shared_lock<FairSharedMutex> lock(state_->guard);  // calls continue while they are combined
  std::vector<adapters::WeightedSource> sources;
  sources.reserve(adapters.size());
  for (size_t i = 0; i < adapters.size(); ++i) {
    const auto& source = state_->get(adapters[i]);
    sources.push_back({adapters[i], source.config, source.state_dict(), weights[i], source.scale});
  }
  const auto layers = adapters::weighted_layers(*model_);
  adapters::CombineBase base;
  base.merged = !state_->merged.empty();
  base.order.reserve(layers.size());
  for (const auto& layer : layers) base.order.push_back(layer.path);
  base.find = [&](const std::string& path) {
    const auto found =
        std::find_if(layers.begin(), layers.end(), [&](const auto& each) { return each.path == path; });
    return found == layers.end() ? nullptr : found->layer.get();
  };
  base.draw_fresh = [&](const AdapterConfig& config) {
    adapters::FreshSource source;
    adapters::build_adapter(name, config, *model_, source);
  };
  const auto combined = adapters::combine(sources, options, &base);
  lock.unlock();
  add_from_tensors(name, combined.config, combined.tensors);
}

}  // namespace graft
