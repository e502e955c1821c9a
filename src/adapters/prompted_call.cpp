#include "adapters/prompted_call.h"

#include <ATen/ATen.h>

#include <mutex>

#include "graft/error.h"
#include "models/architecture.h"
#include "nn/loss.h"
#include "nn/prefix_cache.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

/// `count` columns of one value before those that are there.
at::Tensor with_columns(const at::Tensor& table, int64_t count, int64_t value) {
  return at::cat({at::full({table.size(0), count}, value, table.options()), table}, 1);
}

at::Tensor extended(const at::Tensor& mask, int64_t count) {
  if (mask.dim() != 2)
    throw UsageError(
        "[adapters] an attention_mask of [batch, 1, queries, keys] cannot be extended over virtual tokens: "
        "give one of [batch, keys]");
  return with_columns(mask, count, 1);
}

/// PEFT's own choice; said once, since a call may come often.
void leave_out(at::Tensor& input, std::once_flag& said, const char* what) {
  if (!input.defined()) return;
  std::call_once(said, [&] {
    log_warning(std::string("[adapters] ") + what + " are not known for virtual tokens: they are left out");
  });
  input.reset();
}

void leave_out_positions(ModelInputs& inputs) {
  static std::once_flag said;
  leave_out(inputs.position_ids, said, "position_ids");
}

void leave_out_types(ModelInputs& inputs) {
  static std::once_flag said;
  leave_out(inputs.token_type_ids, said, "token_type_ids");
}

void put_embeddings(ModelInputs& inputs, const at::Tensor& prompt, const PreTrainedModel& model, Task task) {
  const int64_t count = prompt.size(-2);
  const auto own =
      inputs.inputs_embeds.defined() ? inputs.inputs_embeds : model.input_embeddings(inputs.input_ids);
  const auto rows = prompt.to(own.scalar_type()).expand({own.size(0), count, prompt.size(-1)});
  inputs.inputs_embeds = at::cat({rows, own}, 1);
  inputs.input_ids.reset();
  if (inputs.labels.defined() && task == Task::causal_lm)
    inputs.labels = with_columns(inputs.labels, count, nn::kIgnoredLabel);
  if (inputs.token_type_ids.defined()) inputs.token_type_ids = with_columns(inputs.token_type_ids, count, 0);
}

void put_prefix(ModelInputs& inputs, const at::Tensor& prefix, int64_t batch) {
  const auto learned = std::make_shared<nn::PrefixCache>(prefix);
  if (inputs.past_key_values)
    learned->pour_into(*inputs.past_key_values, batch, prefix.scalar_type());
  else
    inputs.past_key_values = learned;
}

/// An encoder's soft prompt is the encoder's, and part of what its cache holds; a prefix is the decoder's.
ModelInputs with_virtual_tokens_of_pair(const VirtualTokens& tokens, const ModelInputs& given,
                                        const PreTrainedModel& model) {
  ModelInputs inputs = given;
  const auto cache = std::dynamic_pointer_cast<EncoderDecoderCache>(inputs.past_key_values);
  const auto& source = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
  if (tokens.embeddings.defined()) {
    if (inputs.attention_mask.defined())
      inputs.attention_mask = extended(inputs.attention_mask, tokens.embeddings.size(-2));
    if (cache && cache->holds_encoder()) {
      // A static cache's mask is as long as its room, in which the prompt has its place.
      if (inputs.attention_mask.defined())
        inputs.attention_mask = inputs.attention_mask.slice(1, 0, cache->encoder(0).first.size(2));
    } else if (source.defined()) {
      put_embeddings(inputs, tokens.embeddings, model, Task::seq2seq_lm);
    }
    return inputs;
  }
  if (inputs.decoder_attention_mask.defined())
    inputs.decoder_attention_mask = extended(inputs.decoder_attention_mask, tokens.prefix.size(2));
  if ((inputs.past_key_values && inputs.past_key_values->seen() > 0) || !source.defined()) return inputs;
  if (!inputs.past_key_values) inputs.past_key_values = std::make_shared<EncoderDecoderCache>();
  put_prefix(inputs, tokens.prefix, source.size(0));
  return inputs;
}

/// By how much the loss of each place counts: the last example of a row, by the numbers of its labels' kinds,
/// in full, each one before it by one factor more.
at::Tensor weights_by_example(const at::Tensor& kinds, const at::Tensor& decay) {
  const auto is_label = kinds.gt(0).logical_and(kinds.remainder(4).eq(0));
  const auto same = kinds.unsqueeze(2).eq(kinds.unsqueeze(1));
  const auto earlier = at::ones({kinds.size(1), kinds.size(1)}, kinds.options().dtype(at::kBool)).tril(-1);
  const auto first_of_kind = is_label.logical_and(same.logical_and(earlier).any(2).logical_not());
  const auto later = kinds.unsqueeze(1).gt(kinds.unsqueeze(2)).logical_and(first_of_kind.unsqueeze(1)).sum(2);
  return at::where(is_label, decay.pow(later), at::ones({}, decay.options()));
}

}  // namespace

void put_loss(const VirtualTokens& tokens, const ModelInputs& given, ModelOutput& output) {
  if (!tokens.kinds.defined() || !given.labels.defined()) return;
  const int64_t batch = given.labels.size(0);
  const auto own = given.input_type_mask.defined() ? given.input_type_mask.to(at::kLong)
                                                   : at::full_like(given.labels, 4, at::kLong);
  const auto moved = at::where(own > 0, own + tokens.kinds.max(), own);
  const auto of_rows = [&](const at::Tensor& row) { return row.unsqueeze(0).expand({batch, row.size(0)}); };
  const auto kinds = at::cat({of_rows(tokens.kinds), moved}, 1).slice(1, 1);
  const auto all = at::cat({of_rows(tokens.ids), given.labels}, 1).slice(1, 1);
  const auto is_label = kinds.gt(0).logical_and(kinds.remainder(4).eq(0));
  const auto labels = at::where(is_label, all, at::full({}, nn::kIgnoredLabel, all.options()));
  const auto logits = output.logits.slice(1, 0, labels.size(1));
  const auto each = at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}), {},
                                           at::Reduction::None, nn::kIgnoredLabel)
                        .view(labels.sizes());
  const auto judged = labels.ne(nn::kIgnoredLabel);
  output.loss = (each * weights_by_example(kinds, tokens.decay)).sum() / judged.sum();
}

ModelInputs with_virtual_tokens(const VirtualTokens& tokens, const ModelInputs& given,
                                const PreTrainedModel& model) {
  if (!tokens.any()) return given;
  const auto task = find_architecture(model.architecture()).task;
  if (task == Task::seq2seq_lm) return with_virtual_tokens_of_pair(tokens, given, model);
  ModelInputs inputs = given;
  if (tokens.kinds.defined()) inputs.labels.reset();  // put_loss()
  const auto& first = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
  // A call with neither or both is the model's to refuse.
  if (!first.defined() || (inputs.input_ids.defined() && inputs.inputs_embeds.defined())) return given;
  const bool soft = tokens.embeddings.defined();
  const int64_t count = soft ? tokens.embeddings.size(-2) : tokens.prefix.size(2);
  if (inputs.attention_mask.defined()) inputs.attention_mask = extended(inputs.attention_mask, count);
  if (task != Task::sequence_classification) leave_out_types(inputs);
  if (soft) leave_out_positions(inputs);
  if (!soft && inputs.position_ids.defined()) inputs.position_ids = inputs.position_ids + count;
  if (inputs.past_key_values && inputs.past_key_values->seen() > 0) return inputs;
  if (soft)
    put_embeddings(inputs, tokens.embeddings, model, task);
  else
    put_prefix(inputs, tokens.prefix, first.size(0));
  return inputs;
}

}  // namespace graft::adapters
