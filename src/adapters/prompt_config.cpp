#include "adapters/prompt_config.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "adapters/method.h"
#include "graft/error.h"
#include "models/architecture.h"

namespace graft::adapters {

int64_t model_size(const PreTrainedModel& model, std::string_view field) {
  static const std::vector<std::pair<std::string_view, std::vector<std::string_view>>> spellings{
      {"num_layers", {"num_hidden_layers", "num_layers", "n_layer"}},
      {"token_dim", {"hidden_size", "n_embd", "d_model"}},
      {"num_attention_heads", {"num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"}}};
  for (const auto& [name, keys] : spellings)
    if (name == field)
      for (const auto& key : keys)
        if (model.config().has(key)) return model.config().integer(key);
  throw ConfigError("[adapters] the model's config.json does not say what \"" + std::string(field) +
                    "\" is: set it in adapter_config.json");
}

namespace {

constexpr std::string_view kSizes[] = {"num_layers", "token_dim", "num_attention_heads"};

/// Of one token's embedding: the hidden size, but for models that project it (OPT 350M).
int64_t embedding_width(const PreTrainedModel& model) {
  const at::NoGradGuard no_grad;
  const auto first = at::zeros({1, 1}, at::TensorOptions(at::kLong).device(model.device()));
  return model.input_embeddings(first).size(-1);
}

bool has_field(const AdapterConfig& config, std::string_view name) {
  const auto& fields = find_method(config.peft_type()).fields;
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
}

AdapterConfig with_number(const AdapterConfig& config, std::string_view field, int64_t value) {
  return config.with(field, std::to_string(value));
}

struct KeyShape {
  int64_t heads, dim;
};

/// Of the keys in a cache, where it does not follow from the sizes that PEFT reads, which then needs to be
/// told: T5's heads together may be wider or narrower than the model, Falcon's may have one key for all.
std::optional<KeyShape> own_key_shape(const PreTrainedModel& model) {
  const auto& sizes = model.config();
  const int64_t heads = model_size(model, "num_attention_heads");
  if (sizes.has("d_kv")) return KeyShape{heads, sizes.integer("d_kv")};
  if (sizes.model_type() != "falcon") return {};
  const bool grouped = sizes.boolean("new_decoder_architecture", false);
  if (grouped && sizes.integer("num_kv_heads", heads) != heads)
    throw ConfigError("[adapters] a prefix is not supported on " + model.architecture() +
                      " with \"num_kv_heads\": PEFT's prefix has keys of its own for each head of a group");
  return KeyShape{grouped || !sizes.boolean("multi_query", true) ? heads : 1,
                  model_size(model, "token_dim") / heads};
}

/// Methods whose file has keys and values.
bool is_prefix(const AdapterConfig& config) {
  return config.peft_type() == "PREFIX_TUNING" || config.peft_type() == "CARTRIDGE";
}

/// Sizes that are set stay as they are, but for a prefix: it must have the shape of the keys, of which there
/// may be fewer than queries.
AdapterConfig fill_sizes(AdapterConfig config, const PreTrainedModel& model) {
  const bool prefix = is_prefix(config);
  const auto& sizes = model.config();
  if (const auto own = prefix ? own_key_shape(model) : std::nullopt; own && !config.has("token_dim"))
    config = with_number(with_number(config, "token_dim", own->heads * own->dim), "num_attention_heads",
                         own->heads);
  for (const auto field : kSizes)
    if (!config.has(field))
      config = with_number(
          config, field, field == "token_dim" && !prefix ? embedding_width(model) : model_size(model, field));
  if (prefix && sizes.has("num_key_value_heads")) {
    const int64_t heads = sizes.integer("num_key_value_heads"),
                  dim = sizes.integer("head_dim",
                                      config.integer("token_dim") / config.integer("num_attention_heads"));
    config = with_number(with_number(config, "token_dim", heads * dim), "num_attention_heads", heads);
  }
  return config;
}

/// What adapter_config.json sets must be what the model has.
void check_sizes(const AdapterConfig& config, const PreTrainedModel& model) {
  auto unset = config;
  for (const auto field : kSizes) unset = unset.with(field, "null");
  const auto right = fill_sizes(unset, model);
  const bool prefix = is_prefix(config);
  for (const auto field : kSizes)
    if ((prefix || field == "token_dim") && config.integer(field) != right.integer(field))
      throw ConfigError("[adapters] \"" + std::string(field) + "\" is " +
                        std::to_string(config.integer(field)) + ", and " + model.architecture() + " needs " +
                        std::to_string(right.integer(field)) +
                        ": leave it out, and it is taken from the model");
}

void check_task(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto task = config.string("task_type");
  const std::pair<std::string_view, Task> known[] = {{"CAUSAL_LM", Task::causal_lm},
                                                     {"SEQ_2_SEQ_LM", Task::seq2seq_lm},
                                                     {"SEQ_CLS", Task::sequence_classification},
                                                     {"FEATURE_EXTRACTION", Task::base}};
  for (const auto& [name, needed] : known)
    if (name == task) {
      if (find_architecture(model.architecture()).task == needed) return;
      throw ConfigError("[adapters] \"task_type\" is \"" + task + "\", which " + model.architecture() +
                        " is not made for");
    }
  throw ConfigError(
      "[adapters] \"task_type\" is " + (task.empty() ? "not set" : "\"" + task + "\"") + ", and " +
      config.peft_type() +
      " needs \"CAUSAL_LM\", \"SEQ_2_SEQ_LM\", \"SEQ_CLS\" or \"FEATURE_EXTRACTION\": it decides "
      "what becomes of labels and token types");
}

/// How many stacks a prompt is for. An encoder's soft prompt may be saved without the decoder's.
AdapterConfig with_submodules(const AdapterConfig& config, const PreTrainedModel& model) {
  const bool pair = find_architecture(model.architecture()).task == Task::seq2seq_lm;
  // PEFT's other soft prompts leave the decoder's half unused; this one does not.
  if (pair && config.peft_type() == "MULTITASK_PROMPT_TUNING" &&
      (!config.has("num_transformer_submodules") || config.integer("num_transformer_submodules") != 1))
    throw ConfigError(
        "[adapters] MULTITASK_PROMPT_TUNING with a prompt for the decoder, too, is not supported: set "
        "\"num_transformer_submodules\" to 1, for the encoder's alone");
  if (!config.has("num_transformer_submodules"))
    return with_number(config, "num_transformer_submodules", pair ? 2 : 1);
  const int64_t given = config.integer("num_transformer_submodules");
  const bool prefix = is_prefix(config);
  if (given == (pair ? 2 : 1) || (given == 1 && !prefix)) return config;
  throw ConfigError("[adapters] \"num_transformer_submodules\" is " + std::to_string(given) + ", and " +
                    model.architecture() + " is " + (pair ? "an encoder with a decoder" : "one stack") +
                    ": leave it out, and it is taken from the model");
}

/// CPT has a virtual token for each of its own, and one stack.
AdapterConfig with_own_tokens(const AdapterConfig& config) {
  if (config.peft_type() != "CPT") return config;
  const auto count = config.integers("cpt_token_ids").size();
  auto whole = with_number(config, "num_virtual_tokens", static_cast<int64_t>(count));
  const std::vector<int64_t> ones(count, 1);
  for (const char* field : {"cpt_mask", "cpt_tokens_type_mask"})
    if (!whole.has(field)) whole = whole.with(field, nlohmann::json(ones).dump());
  return whole;
}

}  // namespace

int64_t total_virtual_tokens(const AdapterConfig& config) {
  return config.integer("num_virtual_tokens") * config.integer("num_transformer_submodules");
}

std::vector<Field> prompt_fields(std::vector<Field> own) {
  for (const char* name : {"num_virtual_tokens", "token_dim", "num_transformer_submodules",
                           "num_attention_heads", "num_layers", "modules_to_save"})
    own.push_back({name, nullptr, {}, Field::Rule::any});
  return own;
}

void check_prompt(const AdapterConfig& config) {
  if (!config.has("num_virtual_tokens") || config.integer("num_virtual_tokens") < 1)
    throw ConfigError("[adapters] \"num_virtual_tokens\" must be set, to at least 1");
}

AdapterConfig with_model_sizes(const AdapterConfig& given, const PreTrainedModel& model) {
  check_task(given, model);
  auto config = fill_sizes(with_own_tokens(given), model);
  check_sizes(config, model);
  config = with_submodules(config, model);
  if (has_field(config, "encoder_hidden_size") && !config.has("encoder_hidden_size"))
    config = with_number(config, "encoder_hidden_size", config.integer("token_dim"));
  return config;
}

}  // namespace graft::adapters
