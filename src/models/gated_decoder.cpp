#include "models/gated_decoder.h"

#include <algorithm>
#include <cmath>

#include "graft/error.h"
#include "models/gated_layer.h"
#include "nn/checkpointing.h"
#include "nn/mask.h"

namespace graft {
namespace {

at::Tensor capped(const at::Tensor& x, double cap) { return at::tanh(x / cap) * cap; }

bool any_layer(const GatedDecoderSpec& spec, bool windowed) {
  if (spec.windows.empty()) return !windowed;
  return std::any_of(spec.windows.begin(), spec.windows.end(),
                     [&](int64_t window) { return (window > 0) == windowed; });
}

}  // namespace

GatedDecoderSpec read_gated_decoder(const Config& config, const GatedDefaults& defaults) {
  check_common_config(config);
  GatedDecoderSpec s{.family = defaults.family};
  s.hidden = config.size("hidden_size", defaults.hidden);
  s.intermediate = config.size("intermediate_size", defaults.intermediate);
  s.heads = config.size("num_attention_heads", defaults.heads);
  s.kv_heads = nullable_integer(config, "num_key_value_heads", defaults.kv_heads).value_or(s.heads);
  s.head_dim = config.size("head_dim", defaults.head_dim.value_or(s.hidden / s.heads));
  s.layers = layer_count(config, "num_hidden_layers", defaults.layers);
  s.vocab = config.size("vocab_size", defaults.vocab);
  s.rope.positions = defaults.positions;
  s.pad = pad_token(config, defaults.pad_token_id);
  s.eps = norm_eps(config, "rms_norm_eps", defaults.eps);
  s.scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  s.attention_dropout = nn::dropout_rate(config, "attention_dropout", 0.0);
  s.activation =
      nn::activation(config.string(defaults.activation_key, defaults.activation), defaults.activation_key);
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    throw ConfigError("[" + std::string(defaults.family) + "] \"num_key_value_heads\" (" +
                      std::to_string(s.kv_heads) + ") does not divide \"num_attention_heads\" (" +
                      std::to_string(s.heads) + ")");
  return s;
}

int64_t sliding_window(const Config& config, std::optional<int64_t> when_absent) {
  const auto window = nullable_integer(config, "sliding_window", when_absent);
  if (window && *window < 1)
    throw ConfigError("[config] \"sliding_window\" is " + std::to_string(*window) +
                      "; it must be at least 1, or null for none");
  return window.value_or(0);
}

std::vector<int64_t> layer_windows(const Config& config, int64_t layers, int64_t window,
                                   const std::function<bool(int64_t)>& slides) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  if (!config.has("layer_types")) {
    for (int64_t i = 0; i < layers; ++i) windows[i] = slides(i) ? window : 0;
    return windows;
  }
  const auto types = config.strings("layer_types");
  if (static_cast<int64_t>(types.size()) != layers)
    throw ConfigError("[config] \"layer_types\" has " + std::to_string(types.size()) + " entries for " +
                      std::to_string(layers) + " layers");
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention")
      throw ConfigError("[config] \"layer_types\" has \"" + types[i] +
                        "\", which is not supported; known: full_attention, sliding_attention");
    if (window == 0)
      throw ConfigError("[config] \"layer_types\" has \"sliding_attention\", but there is no sliding window");
    windows[i] = window;
  }
  return windows;
}

std::vector<int64_t> qwen_windows(const Config& config, int64_t layers) {
  const int64_t stated = sliding_window(config, 4096);
  const int64_t window = config.boolean("use_sliding_window", false) ? stated : 0;
  const int64_t from = config.integer("max_window_layers", 28);
  return layer_windows(config, layers, window, [from](int64_t layer) { return layer >= from; });
}

GatedDecoder::GatedDecoder(const nn::Build& b, const Config& config, const GatedDecoderSpec& spec)
    : PreTrainedModel(config), spec_(spec) {
  embed_tokens = b.child<nn::Embedding>(*this, "embed_tokens", spec.vocab, spec.hidden,
                                        padding_row(spec.pad, spec.vocab));
  layers = b.child<nn::List<GatedDecoderLayer>>(
      *this, "layers", spec.layers,
      [&](const nn::Build& at, int64_t i) { return std::make_shared<GatedDecoderLayer>(at, spec, i); });
  norm = b.child<nn::RMSNorm>(*this, "norm", spec.hidden, spec.eps, spec.norm_form);
  rotary_emb = std::make_shared<nn::RotaryEmbedding>(b / "rotary_emb", config, spec.head_dim, spec.rope);
}

GatedDecoder::~GatedDecoder() = default;

ModelOutput GatedDecoder::forward(const ModelInputs& inputs) {
  check_inputs(inputs, spec_.family, {"input_ids"}, {"attention_mask", "position_ids", "past_key_values"});
  auto x = embedded(*this, inputs);
  const bool recompute = checkpointing_ && is_training();
  const auto cache = cache_for_layers(inputs, recompute);
  const auto mask = [&](int64_t window) {
    const auto sees =
        nn::causal_mask({x, inputs.attention_mask, cache.get(), packed_positions(config(), inputs), window});
    return spec_.plain_attention ? nn::additive_mask(sees, x) : sees;
  };
  GatedLayerInputs in{.rotation = rotary_emb->forward(x, positions_or_default(inputs, x)), .cache = cache};
  if (any_layer(spec_, /*windowed=*/false)) in.mask = mask(0);
  if (any_layer(spec_, /*windowed=*/true))
    in.window_mask = mask(*std::max_element(spec_.windows.begin(), spec_.windows.end()));
  x = nn::through(*layers, std::move(x), recompute, in);
  if (cache) cache->advance(x.size(1));
  return {.last_hidden_state = norm->forward(x)};
}

at::Tensor GatedDecoder::input_embeddings(const at::Tensor& input_ids) const {
  auto rows = embed_tokens->forward(input_ids);
  if (!spec_.scales_embeddings) return rows;
  // The factor is rounded to the rows' dtype first, as transformers does it.
  return rows * at::full({}, std::sqrt(static_cast<double>(spec_.hidden)), rows.options());
}

at::Tensor GatedDecoder::cap_logits(const at::Tensor& logits) const {
  return spec_.logit_softcap > 0 ? capped(logits, spec_.logit_softcap) : logits;
}

}  // namespace graft
