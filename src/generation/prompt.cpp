#include "generation/prompt.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "adapters/method.h"
#include "graft/error.h"
#include "models/architecture.h"
#include "support/counted.h"
#include "support/log.h"
#include "support/memory.h"

namespace graft::generation {
namespace {

std::string text(at::IntArrayRef sizes) {
  std::string all = "[";
  for (const auto size : sizes) all += (all.size() > 1 ? ", " : "") + std::to_string(size);
  return all + "]";
}

void check_given(const ModelInputs& given) {
  for (const auto& [name, is_given] : {std::pair("position_ids", given.position_ids.defined()),
                                       {"token_type_ids", given.token_type_ids.defined()},
                                       {"pixel_values", given.pixel_values.defined()},
                                       {"labels", given.labels.defined()},
                                       {"input_type_mask", given.input_type_mask.defined()},
                                       {"decoder_input_ids", given.decoder_input_ids.defined()},
                                       {"decoder_attention_mask", given.decoder_attention_mask.defined()},
                                       {"past_key_values", given.past_key_values != nullptr}})
    if (is_given)
      throw UsageError(std::string("[generate] a prompt has input_ids and attention_mask; there is ") + name +
                       " too, which is not supported");
  if (!given.input_ids.defined()) throw UsageError("[generate] there are no input_ids to continue");
  const auto& ids = given.input_ids;
  if (ids.dim() != 2 || (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt))
    throw UsageError("[generate] input_ids must be [batch, seq] of int64 or int32");
  if (ids.numel() == 0)
    throw UsageError("[generate] input_ids are " + text(ids.sizes()) + ": every row needs a token");
  const auto& mask = given.attention_mask;
  if (mask.defined() && mask.sizes() != ids.sizes())
    throw UsageError("[generate] attention_mask is " + text(mask.sizes()) + " and input_ids are " +
                     text(ids.sizes()) + ": they must be the same");
}

void check_vocabulary(const at::Tensor& ids, const Config& config, std::optional<int64_t> of_adapters = {}) {
  const auto vocab = of_adapters ? of_adapters : config.optional_integer("vocab_size");
  if (!vocab) return;
  const auto least = ids.min().item<int64_t>(), most = ids.max().item<int64_t>();
  if (least < 0 || most >= *vocab)
    throw UsageError("[generate] input_ids hold " + std::to_string(least < 0 ? least : most) +
                     ", and the model's vocabulary has " + std::to_string(*vocab) + " tokens");
}

at::Tensor given_mask(const ModelInputs& given, const at::Tensor& ids) {
  return given.attention_mask.to(ids.device()).ne(0).to(at::kLong);
}

/// As given; else pad tokens are padding, unless a pad token is also what ends a row.
at::Tensor mask_of(const ModelInputs& given, const at::Tensor& ids, const GenerationConfig& config) {
  if (given.attention_mask.defined()) return given_mask(given, ids);
  const auto& eos = config.eos_token_id;
  const auto pad = config.pad_token_id;
  if (!pad || std::find(eos.begin(), eos.end(), *pad) != eos.end()) return at::ones_like(ids);
  return ids.ne(*pad).to(at::kLong);
}

void check_rows(const at::Tensor& mask) {
  const auto empty = mask.sum(1).eq(0).nonzero();
  if (empty.size(0) > 0)
    throw UsageError("[generate] row " + std::to_string(empty[0].item<int64_t>()) +
                     " of the prompt is padding only");
}

void check_mask(const at::Tensor& mask) {
  check_rows(mask);
  if (mask.select(1, mask.size(1) - 1).eq(0).any().item<bool>())
    log_warning(
        "[generate] rows of the prompt end with padding: put it on the left, for the model continues after "
        "the "
        "last column");
}

/// As many rows of each as there are beams or draws.
void copy_rows(Prompt& prompt, const GenerationConfig& config) {
  prompt.copies = std::max(config.num_beams, config.num_return_sequences);
  if (prompt.copies == 1) return;
  for (auto* tensor : {&prompt.ids, &prompt.mask, &prompt.positions, &prompt.source_ids, &prompt.source_mask,
                       &prompt.rows.task_ids, &prompt.rows.alora_offsets})
    if (tensor->defined()) *tensor = tensor->repeat_interleave(prompt.copies, 0);
}

/// Refuses what no machine has room for, before anybody tries to get it: what is asked for is in the message,
/// as an allocator's would not have it.
void check_size(const Prompt& prompt, const GenerationConfig& config, const PreTrainedModel& model) {
  if (prompt.new_tokens > INT32_MAX - prompt.length())
    throw UsageError("[generate] " + std::to_string(prompt.new_tokens) +
                     " new tokens are more than can be counted: lower max_new_tokens");
  const auto copies = std::max(config.num_beams, config.num_return_sequences);
  const auto vocabulary = static_cast<double>(model.config().optional_integer("vocab_size").value_or(1));
  // The scores of a step and what a softmax or a sort makes of them; the tokens of the prompts.
  const double row = 3 * sizeof(float) * vocabulary + sizeof(int64_t) * static_cast<double>(prompt.length());
  const std::string setting = config.num_beams > 1 ? "num_beams" : "num_return_sequences";
  check_memory(row * static_cast<double>(prompt.batch()) * static_cast<double>(copies),
               setting + " is " + std::to_string(copies) + ": the scores of one step alone take",
               "lower " + setting + " or the batch");
}

/// A model with rotary positions or linear biases goes on past what it was trained for; how well is another
/// question.
void warn_of_length(const Prompt& prompt, const PreTrainedModel& model) {
  const auto trained = model.config().optional_integer("max_position_embeddings");
  const auto tokens = prompt.cached();
  if (trained && tokens > *trained)
    log_warning(
        "[generate] " + counted(tokens, "token") + " are more than the " + std::to_string(*trained) +
        " that this model was trained for (max_position_embeddings): what it says past them may make no "
        "sense");
}

/// transformers' rule: max_new_tokens, else max_length, else 20 as far as positions go.
int64_t new_tokens(const GenerationConfig& config, int64_t length, const PreTrainedModel& model) {
  constexpr int64_t by_default = 20;
  if (config.max_new_tokens) return *config.max_new_tokens;
  if (config.max_length) {
    if (*config.max_length <= length)
      throw UsageError("[generate] the prompt has " + counted(length, "token") + " and max_length is " +
                       std::to_string(*config.max_length) + ": raise it, or give max_new_tokens");
    return *config.max_length - length;
  }
  const auto positions = model.config().optional_integer("max_position_embeddings");
  return std::max<int64_t>(1, std::min(by_default, positions.value_or(INT64_MAX) - length));
}

void check_room(const Prompt& prompt, const PreTrainedModel& model) {
  const auto limit = model.position_limit();
  const auto before =
      prompt.virtual_tokens > 0 ? " after " + std::to_string(prompt.virtual_tokens) + " virtual ones" : "";
  if (limit && prompt.cached() > *limit)
    throw UsageError("[generate] a prompt of " + counted(prompt.length(), "token") + before + " and " +
                     counted(prompt.new_tokens, "new one") + " are more than the " + std::to_string(*limit) +
                     " positions this model has: lower max_new_tokens");
}

int64_t start_token(const GenerationConfig& config, const PreTrainedModel& model) {
  for (const auto& token :
       {config.decoder_start_token_id, model.config().optional_integer("decoder_start_token_id"),
        model.config().optional_integer("bos_token_id")})
    if (token) return *token;
  throw UsageError(
      "[generate] the decoder needs a token to start with: \"decoder_start_token_id\" is in "
      "neither generation_config.json nor config.json");
}

at::Tensor on_device(const at::Tensor& data, const PreTrainedModel& model) {
  return data.defined() ? data.to(model.device()) : data;
}

/// The prompt is the encoder's; the decoder starts with one token of its own.
Prompt prepare_decoder(const ModelInputs& given, const GenerationConfig& config, const PreTrainedModel& model,
                       int64_t virtual_tokens) {
  const auto source = given.input_ids.to(model.device(), at::kLong).contiguous();
  check_vocabulary(source, model.config());
  // Without a mask an encoder reads all tokens, pad tokens too: transformers infers a decoder's mask only.
  const auto mask = given.attention_mask.defined() ? given_mask(given, source) : at::ones_like(source);
  check_rows(mask);
  Prompt prompt{.ids = at::full({source.size(0), 1}, start_token(config, model), source.options()),
                .virtual_tokens = virtual_tokens,
                .source_ids = source,
                .rows = {.task_ids = on_device(given.task_ids, model)}};
  check_vocabulary(prompt.ids, model.config());
  prompt.positions = at::zeros_like(prompt.ids);
  if (mask.eq(0).any().item<bool>()) prompt.source_mask = mask;
  prompt.new_tokens = new_tokens(config, prompt.length(), model);
  check_size(prompt, config, model);
  copy_rows(prompt, config);
  return prompt;
}

}  // namespace

std::vector<std::string> for_copies(const std::vector<std::string>& names, int64_t copies) {
  std::vector<std::string> all;
  for (const auto& name : names) all.insert(all.end(), static_cast<size_t>(copies), name);
  return all;
}

void put_adapters(Prompt& prompt, const PeftModel& model, const std::vector<std::string>& names) {
  if (!prompt.rows.alora_offsets.defined())
    prompt.rows.alora_offsets = model.alora_offsets(prompt.ids, {names});
  if (!model.adapters_enabled()) return;
  const auto working = names.empty() ? model.active_adapters() : names;
  const std::set<std::string> each(working.begin(), working.end());
  prompt.mixes_tokens = std::any_of(each.begin(), each.end(), [&](const auto& name) {
    return name != "__base__" && adapters::find_method(model.peft_config(name).peft_type()).mixes_tokens;
  });
}

bool is_encoder_decoder(const PreTrainedModel& model) {
  return find_architecture(model.architecture()).task == Task::seq2seq_lm;
}

void Rows::put_into(ModelInputs& inputs) const {
  inputs.task_ids = task_ids;
  if (!alora_offsets.defined() || !inputs.input_ids.defined()) return;
  constexpr int64_t all = 1 << 30;
  const bool starts = !inputs.past_key_values || inputs.past_key_values->seen() == 0;
  const int64_t behind = starts ? inputs.input_ids.size(1) - prompt_length : all;
  inputs.alora_offsets = (alora_offsets + behind).masked_fill(alora_offsets <= 0, 0);
}

Prompt prepare(const ModelInputs& given, const GenerationConfig& config, const PreTrainedModel& model,
               int64_t virtual_tokens, std::optional<int64_t> vocabulary) {
  config.check();
  check_given(given);
  if (is_encoder_decoder(model)) return prepare_decoder(given, config, model, virtual_tokens);
  Prompt prompt{.ids = given.input_ids.to(model.device(), at::kLong).contiguous()};
  check_vocabulary(prompt.ids, model.config(), vocabulary);
  const auto mask = mask_of(given, prompt.ids, config);
  check_mask(mask);
  prompt.positions = (mask.cumsum(1) - 1).masked_fill(mask.eq(0), 0);
  if (mask.eq(0).any().item<bool>()) prompt.mask = mask;
  prompt.new_tokens = new_tokens(config, prompt.length(), model);
  prompt.virtual_tokens = virtual_tokens;
  check_size(prompt, config, model);
  prompt.rows = {on_device(given.task_ids, model), on_device(given.alora_offsets, model), prompt.length()};
  check_room(prompt, model);
  warn_of_length(prompt, model);
  copy_rows(prompt, config);
  return prompt;
}

}  // namespace graft::generation
