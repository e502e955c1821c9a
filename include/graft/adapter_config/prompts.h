// Methods that put tokens, or keys and values, before the input or into the attention.
#pragma once
#include "graft/adapter_config/config.h"

namespace graft {

/// LLaMA-Adapter; both numbers must be set.
struct AdaptionPromptConfig {
  std::string target_modules = {};
  std::optional<int64_t> adapter_len = {};
  std::optional<int64_t> adapter_layers = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct PromptTuningConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  std::string prompt_tuning_init = "RANDOM";  ///< or "TEXT", "SAMPLE_VOCAB"
  std::string prompt_tuning_init_text = {};
  std::string tokenizer_name_or_path = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct PrefixTuningConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  std::string init_weights = {};  ///< or "zero"
  std::optional<int64_t> encoder_hidden_size = {};
  bool prefix_projection = false;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct PromptEncoderConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  std::string encoder_reparameterization_type = "MLP";  ///< or "LSTM"
  std::optional<int64_t> encoder_hidden_size = {};
  int64_t encoder_num_layers = 2;
  double encoder_dropout = 0;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// One prompt for all tasks, times a low-rank matrix of each row's own task.
struct MultitaskPromptTuningConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  std::string prompt_tuning_init = "RANDOM";  ///< or "TEXT", "AVERAGE_SOURCE_TASKS", "EXACT_SOURCE_TASK", ...
  std::string prompt_tuning_init_text = {};
  std::string tokenizer_name_or_path = {};
  /// What training on source tasks left (.safetensors), and which of its tasks.
  std::string prompt_tuning_init_state_dict_path = {};
  int64_t prompt_tuning_init_task = 0;
  int64_t num_ranks = 1;
  int64_t num_tasks = 1;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// A prompt made of tokens, each of which may move a little; the number of virtual tokens is theirs.
struct CPTConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  std::vector<int64_t> cpt_token_ids = {};
  std::vector<int64_t> cpt_mask = {};
  std::vector<int64_t> cpt_tokens_type_mask = {};
  std::string opt_weighted_loss_type = "none";  ///< or "decay"
  double opt_loss_decay_factor = 1;
  double opt_projection_epsilon = 0.1;
  double opt_projection_format_epsilon = 0.1;
  std::string tokenizer_name_or_path = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// Keys and values themselves; the first tokens stay as they are.
struct CartridgeConfig {
  std::optional<int64_t> num_virtual_tokens = {};
  std::optional<int64_t> token_dim = {};
  std::optional<int64_t> num_transformer_submodules = {};
  std::optional<int64_t> num_attention_heads = {};
  std::optional<int64_t> num_layers = {};
  int64_t num_frozen_tokens = 1;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

}  // namespace graft
