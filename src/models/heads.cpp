#include "models/heads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "graft/error.h"
#include "support/log.h"

namespace graft {
namespace {

bool is_present(const Config& config, std::string_view key) {
  const auto keys = config.keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

at::Tensor last_token_logits(std::optional<int64_t> pad, const at::Tensor& logits,
                             const at::Tensor& input_ids) {
  const int64_t batch = logits.size(0);
  if (!pad) {
    if (batch != 1)
      throw UsageError("[models] a batch of " + std::to_string(batch) +
                       " needs \"pad_token_id\" in config.json, to find each row's last token");
    return logits.select(1, logits.size(1) - 1);
  }
  if (!input_ids.defined()) {
    static std::once_flag once;
    std::call_once(once, [] {
      log_warning(
          "[models] inputs_embeds do not show which tokens are padding: a row is classified by its last "
          "token");
    });
    return logits.select(1, logits.size(1) - 1);
  }
  // The rightmost token that is not padding, whichever side the padding is on.
  const auto is_token = input_ids.ne(*pad).to(at::kInt);
  const auto index = at::arange(input_ids.size(-1), is_token.options());
  const auto last = (index * is_token).argmax(-1);
  const auto rows = at::arange(batch, logits.options().dtype(at::kLong));
  return logits.index({rows, last});
}

std::optional<int64_t> nullable_integer(const Config& config, std::string_view key,
                                        std::optional<int64_t> when_absent) {
  return is_present(config, key) ? config.optional_integer(key) : when_absent;
}

std::optional<double> nullable_number(const Config& config, std::string_view key,
                                      std::optional<double> when_absent) {
  if (!is_present(config, key)) return when_absent;
  return config.has(key) ? std::optional(config.number(key)) : std::nullopt;
}

int64_t layer_count(const Config& config, std::string_view key, std::optional<int64_t> fallback,
                    int64_t least) {
  constexpr int64_t kMost = 100'000;
  const int64_t layers = config.size(key, fallback, least);
  if (layers > kMost)
    throw ConfigError("[config] \"" + std::string(key) + "\" is " + std::to_string(layers) + "; at most " +
                      std::to_string(kMost) + " layers are supported");
  return layers;
}

int64_t aliased_size(const Config& config, const std::string& key, const std::string& alias, int64_t fallback,
                     int64_t least) {
  const int64_t own = config.size(key, fallback, least), other = config.size(alias, own, least);
  if (config.has(key) && own != other)
    throw ConfigError("[config] \"" + key + "\" (" + std::to_string(own) + ") and \"" + alias + "\" (" +
                      std::to_string(other) + ") mean the same and differ");
  return other;
}

double norm_eps(const Config& config, std::string_view key, double fallback) {
  const double eps = config.number(key, fallback);
  if (!(eps >= 0 && std::isfinite(eps)))
    throw ConfigError("[config] \"" + std::string(key) + "\" must be at least 0, got " + std::to_string(eps));
  return eps;
}

std::optional<int64_t> pad_token(const Config& config, std::optional<int64_t> when_absent) {
  return nullable_integer(config, "pad_token_id", when_absent);
}

int64_t padding_row(std::optional<int64_t> pad, int64_t vocab) {
  if (!pad) return -1;
  if (*pad < -vocab || *pad >= vocab)
    throw ConfigError("[models] \"pad_token_id\" (" + std::to_string(*pad) + ") is not in a vocabulary of " +
                      std::to_string(vocab));
  return *pad < 0 ? *pad + vocab : *pad;
}

at::Tensor embedded(const PreTrainedModel& model, const ModelInputs& inputs) {
  return inputs.inputs_embeds.defined() ? inputs.inputs_embeds : model.input_embeddings(inputs.input_ids);
}

int64_t token_count(const ModelInputs& inputs) {
  return (inputs.inputs_embeds.defined() ? inputs.inputs_embeds : inputs.input_ids).size(1);
}

at::Tensor positions_or_default(const ModelInputs& inputs, const at::Tensor& like) {
  if (inputs.position_ids.defined()) return inputs.position_ids;
  auto positions = at::arange(like.size(1), like.options().dtype(at::kLong));
  if (inputs.past_key_values) positions = positions + inputs.past_key_values->seen_tensor(like.device());
  return positions.view({-1, like.size(1)});
}

void check_counted_positions(const ModelInputs& inputs, int64_t count) {
  if (inputs.position_ids.defined()) return;
  const int64_t seen = inputs.past_key_values ? inputs.past_key_values->seen() : 0,
                tokens = token_count(inputs);
  if (seen + tokens > count)
    throw UsageError("[models] " + std::to_string(seen + tokens) + " tokens are more than the " +
                     std::to_string(count) + " positions this model has");
}

std::shared_ptr<KVCache> cache_for_layers(const ModelInputs& inputs, bool recompute) {
  if (!recompute) return inputs.past_key_values;
  if (inputs.past_key_values && inputs.past_key_values->seen() > 0)
    throw UsageError(
        "[models] gradient checkpointing in training cannot continue from a cache that holds tokens");
  return nullptr;
}

at::Tensor packed_positions(const Config& config, const ModelInputs& inputs) {
  return config.boolean("use_cache", true) ? at::Tensor() : inputs.position_ids;
}

void check_inputs(const ModelInputs& inputs, std::string_view architecture,
                  std::initializer_list<std::string_view> required,
                  std::initializer_list<std::string_view> accepted) {
  const std::pair<std::string_view, bool> given[] = {
      {"attention_mask", inputs.attention_mask.defined()},
      {"position_ids", inputs.position_ids.defined()},
      {"token_type_ids", inputs.token_type_ids.defined()},
      {"pixel_values", inputs.pixel_values.defined()},
      {"labels", inputs.labels.defined()},
      {"decoder_input_ids", inputs.decoder_input_ids.defined()},
      {"decoder_attention_mask", inputs.decoder_attention_mask.defined()},
      {"task_ids", inputs.task_ids.defined()},
      {"alora_offsets", inputs.alora_offsets.defined()},
      {"input_type_mask", inputs.input_type_mask.defined()},
      {"past_key_values", inputs.past_key_values != nullptr}};
  const auto among = [](std::initializer_list<std::string_view> list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  const auto& ids = inputs.input_ids;
  const auto& embeds = inputs.inputs_embeds;
  const std::string who(architecture);
  if (!among(required, "input_ids")) {
    if (ids.defined()) throw UsageError("[models] " + who + " takes no input_ids");
    if (embeds.defined()) throw UsageError("[models] " + who + " takes no inputs_embeds");
  } else if (ids.defined() == embeds.defined()) {
    throw UsageError("[models] " + who +
                     (ids.defined() ? " takes input_ids or inputs_embeds, not both"
                                    : " needs input_ids (or inputs_embeds in their place)"));
  }
  for (const auto& [name, is_given] : given) {
    if (is_given && !among(required, name) && !among(accepted, name))
      throw UsageError("[models] " + who + " takes no " + std::string(name));
    if (!is_given && among(required, name))
      throw UsageError("[models] " + who + " needs " + std::string(name));
  }
  for (const auto& [name, tensor] :
       {std::pair("input_ids", ids), {"inputs_embeds", embeds}, {"pixel_values", inputs.pixel_values}})
    if (tensor.defined() && tensor.numel() == 0)
      throw UsageError(std::string("[models] there is nothing in ") + name);
  if (embeds.defined() && (embeds.dim() != 3 || !embeds.is_floating_point()))
    throw UsageError("[models] inputs_embeds must be [batch, seq, width] of a floating-point dtype");
  if (ids.defined() && (ids.dim() != 2 || (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt)))
    throw UsageError("[models] input_ids must be [batch, seq] of int64 or int32");
  const auto& positions = inputs.position_ids;
  if (positions.defined() && positions.size(-1) != token_count(inputs))
    throw UsageError("[models] position_ids are for " + std::to_string(positions.size(-1)) + " tokens of " +
                     std::to_string(token_count(inputs)));
  if (inputs.pixel_values.defined() && inputs.pixel_values.dim() != 4)
    throw UsageError("[models] pixel_values must be [batch, channels, height, width]");
}

void check_common_config(const Config& config) {
  const auto refuse = [](const std::string& what) { throw ConfigError("[models] " + what); };
  if (config.has("quantization_config"))
    refuse(
        "\"quantization_config\" is set: quantised checkpoints are not supported yet; save a dequantised "
        "one");
  if (!config.boolean("is_causal", true))
    refuse("\"is_causal\" is false: bidirectional decoders are not supported");
  if (config.boolean("add_cross_attention", false)) refuse("\"add_cross_attention\" is not supported");
  if (config.boolean("is_encoder_decoder", false))
    refuse("\"is_encoder_decoder\" is not supported by this architecture");
  if (config.has("per_layer_config")) refuse("\"per_layer_config\" is not supported");
}

}  // namespace graft
