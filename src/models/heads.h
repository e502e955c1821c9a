// What the heads of decoder models share.
#pragma once
#include "graft/model.h"

namespace graft {

/// [batch, seq, labels] -> [batch, labels]: the logits at each row's last token that is not padding.
at::Tensor last_token_logits(const Config& config, const at::Tensor& logits, const at::Tensor& input_ids);
/// The same for an architecture that has a padding token of its own where config.json names none.
at::Tensor last_token_logits(std::optional<int64_t> pad_token_id, const at::Tensor& logits,
                             const at::Tensor& input_ids);

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
void check_inputs(const ModelInputs& inputs, std::string_view architecture,
                  std::initializer_list<std::string_view> required,
                  std::initializer_list<std::string_view> accepted);

/// ConfigError for fields that would change the result in a way no architecture here implements.
void check_common_config(const Config& config);

}  // namespace graft
