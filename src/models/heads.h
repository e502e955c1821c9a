// What the heads of decoder models share.
#pragma once
#include "graft/model.h"

namespace graft {

/// [batch, seq, labels] -> [batch, labels]: the logits at each row's last token that is not padding.
/// Without a padding token, a batch of one. Without input_ids (the call had inputs_embeds) padding cannot be
/// seen: the last token, as in transformers, and a warning.
at::Tensor last_token_logits(std::optional<int64_t> pad_token_id, const at::Tensor& logits,
                             const at::Tensor& input_ids);

/// What config.json says under `key`: `when_absent` where there is no such key, none where it is null.
/// (Config itself takes null for absent, but here an architecture has a default that null switches off.)
std::optional<int64_t> nullable_integer(const Config& config, std::string_view key,
                                        std::optional<int64_t> when_absent);
std::optional<double> nullable_number(const Config& config, std::string_view key,
                                      std::optional<double> when_absent);

/// How many layers config.json says there are: a size with a bound that no model comes near, since things
/// are made for each layer before any of its weights is looked for.
int64_t layer_count(const Config& config, std::string_view key, std::optional<int64_t> fallback,
                    int64_t least = 0);

/// A size under the architecture's own name or under the one that transformers lets stand for it (its
/// attribute_map); ConfigError where both are there and differ.
int64_t aliased_size(const Config& config, const std::string& key, const std::string& alias, int64_t fallback,
                     int64_t least = 1);

/// What a norm adds to the variance; ConfigError where that is negative.
double norm_eps(const Config& config, std::string_view key, double fallback);

/// config.json's `pad_token_id`; the architecture's own where the key is absent, none where it is null.
std::optional<int64_t> pad_token(const Config& config, std::optional<int64_t> when_absent);

/// The row of a token table that `pad` names, -1 for none. A negative id counts from the end, as
/// torch.nn.Embedding has it.
int64_t padding_row(std::optional<int64_t> pad, int64_t vocab);

/// inputs_embeds, or what the model makes of input_ids: [batch, seq, width].
at::Tensor embedded(const PreTrainedModel& model, const ModelInputs& inputs);

/// Tokens of each row, given in either form.
int64_t token_count(const ModelInputs& inputs);

/// position_ids as given, else counted from what the cache holds: [1 or batch, seq].
at::Tensor positions_or_default(const ModelInputs& inputs, const at::Tensor& like);

/// UsageError when positions_or_default would count past a table of `count` learned positions: on CUDA the
/// lookup itself cannot say so.
void check_counted_positions(const ModelInputs& inputs, int64_t count);

/// The cache that layers may write to: none while activations are recomputed, since the second pass would
/// write again. UsageError when it then holds tokens that the layers would not see.
std::shared_ptr<KVCache> cache_for_layers(const ModelInputs& inputs, bool recompute);

/// position_ids where they may tell packed sequences apart: transformers looks for those only when the
/// config's `use_cache` is off.
at::Tensor packed_positions(const Config& config, const ModelInputs& inputs);

/// UsageError naming the first input that is set and not among `accepted`, or that is required and missing.
/// Where input_ids is required, inputs_embeds serves as well; both are an error.
void check_inputs(const ModelInputs& inputs, std::string_view architecture,
                  std::initializer_list<std::string_view> required,
                  std::initializer_list<std::string_view> accepted);

/// ConfigError for fields that would change the result in a way no architecture here implements.
void check_common_config(const Config& config);

}  // namespace graft
