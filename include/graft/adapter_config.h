// The configuration of an adapter: the content of PEFT's adapter_config.json, field by field, and for every
// method a plain struct with PEFT's names and defaults:
//
//   graft::get_peft_model(model, graft::OFTConfig{.oft_block_size = 8, .target_modules = "all-linear"});
//
// A field that is left alone takes PEFT's default. A field of a file that nobody knows is an error unless it
// is null, false or empty (newer versions of PEFT add fields), and so is a value that a field cannot have.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

/// Modules by name: a list of names (each the whole path or its end), or one regular expression over whole
/// paths; "all-linear" is every linear layer but the output layer. Empty: what PEFT has for the model type.
class ModuleNames {
 public:
  ModuleNames() = default;
  ModuleNames(std::initializer_list<const char*> names) : set_(true), names_(names.begin(), names.end()) {}
  ModuleNames(std::vector<std::string> names) : set_(true), names_(std::move(names)) {}
  ModuleNames(const char* pattern) : set_(true), pattern_(pattern) {}
  ModuleNames(std::string pattern) : set_(true), pattern_(std::move(pattern)) {}

  /// Not left alone: an empty list is one, too.
  bool is_set() const { return set_; }
  bool empty() const { return names_.empty() && !pattern_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::optional<std::string>& pattern() const { return pattern_; }

 private:
  bool set_ = false;
  std::vector<std::string> names_;
  std::optional<std::string> pattern_;
};

class AdapterConfig {
 public:
  /// Reads DIR/adapter_config.json, or that file itself.
  static AdapterConfig from_pretrained(const std::filesystem::path& dir);
  /// `label` names the text in error messages.
  static AdapterConfig from_json(std::string_view text, std::string_view label = "adapter_config.json");

  /// "LORA", "IA3", ...
  const std::string& peft_type() const;
  /// Whether the field is set to anything but null, false or empty.
  bool has(std::string_view field) const;
  // UsageError for a field that the method does not have.
  int64_t integer(std::string_view field) const;
  double number(std::string_view field) const;
  bool boolean(std::string_view field) const;
  std::string string(std::string_view field) const;
  /// Null gives none; one string gives one.
  std::vector<std::string> strings(std::string_view field) const;
  std::vector<int64_t> integers(std::string_view field) const;
  ModuleNames modules(std::string_view field) const;
  /// {"pattern": number}, in the order of the text: the first that matches a layer counts.
  std::vector<std::pair<std::string, double>> pattern(std::string_view field) const;
  /// {"name": [whole numbers, or true and false as 1 and 0]}, sorted by name.
  std::vector<std::pair<std::string, std::vector<int64_t>>> lists(std::string_view field) const;
  /// Any field, as JSON.
  std::string text(std::string_view field) const;
  bool is_string(std::string_view field) const;
  bool is_object(std::string_view field) const;
  /// An empty list is one, too.
  bool is_list(std::string_view field) const;

  /// A copy with one field set to a JSON value.
  AdapterConfig with(std::string_view field, std::string_view json_value) const;
  AdapterConfig with(std::string_view field, const std::vector<std::string>& values) const;

  /// All fields of the method, sorted, as PEFT writes them.
  std::string dump() const;

 private:
  struct State;
  static AdapterConfig from_values(const std::shared_ptr<State>& state);
  explicit AdapterConfig(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// The structs convert to an AdapterConfig, which checks them. Fields of PEFT's that ask for what graft does
// not have, and those that only say where an adapter comes from, are not here. An empty text or list is None.

/// Of fields that are true, false or a word.
class FlagOrName {
 public:
  FlagOrName(bool flag) : flag_(flag) {}
  FlagOrName(const char* name) : FlagOrName(std::string(name)) {}
  FlagOrName(std::string name) : flag_(name == "true"), name_(std::move(name)) {}

  /// Empty for a flag; "true" and "false" are flags.
  std::string name() const { return name_ == "true" || name_ == "false" ? "" : name_; }
  bool flag() const { return flag_; }

 private:
  bool flag_;
  std::string name_;
};

/// Tokens of the input embedding, or of layers by name; one of the two, or neither.
struct TokenIndices {
  std::vector<int64_t> tokens = {};
  std::map<std::string, std::vector<int64_t>> by_layer = {};
};

/// LoRA's variants (at most one of them), each a field of LoraConfig: VeLoRA keeps less for the backward
/// pass.
struct VeloraConfig {
  int64_t num_groups = 64;
  double scale = 1;
  std::string init_type = "batch_average";  ///< or "batch_average_once", "random"
};

/// BD-LoRA: A or B has blocks along its diagonal, on the layers whose paths have one of these texts in them.
struct BdLoraConfig {
  std::vector<std::string> target_modules_bd_a = {};
  std::vector<std::string> target_modules_bd_b = {};
  int64_t nblocks = 1;
  bool match_strict = true;
};

/// KaSA; the two are the weights of its penalties.
struct KasaConfig {
  double beta = 1e-4;
  double gamma = 1e-3;
};

/// LoRA, and DoRA with `use_dora`.
struct LoraConfig {
  int64_t r = 8;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  double lora_alpha = 8;
  double lora_dropout = 0;
  std::string bias = "none";
  bool use_rslora = false;
  bool use_dora = false;
  bool lora_bias = false;
  bool fan_in_fan_out = false;
  /// or "gaussian", "orthogonal", "pissa", "pissa_niter_N", "olora", "mica"
  FlagOrName init_lora_weights = true;
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};
  TokenIndices trainable_token_indices = {};
  bool ensure_weight_tying = false;
  /// aLoRA: the adapter works from the last of these in a row on.
  std::vector<int64_t> alora_invocation_tokens = {};
  std::vector<std::string> target_parameters = {};           ///< weights by name, beside layers
  std::vector<std::vector<int64_t>> layer_replication = {};  ///< {{0, 4}, {2, 5}}: blocks 0 1 2 3 2 3 4
  std::optional<BdLoraConfig> use_bdlora = {};
  std::optional<VeloraConfig> velora_config = {};
  std::optional<KasaConfig> kasa_config = {};

  operator AdapterConfig() const;
};

/// `total_step` must be set.
struct AdaLoraConfig {
  int64_t init_r = 12;
  int64_t target_r = 8;
  int64_t tinit = 0;
  int64_t tfinal = 0;
  int64_t deltaT = 1;
  double beta1 = 0.85;
  double beta2 = 0.85;
  double orth_reg_weight = 0.5;
  std::optional<int64_t> total_step = {};
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  double lora_alpha = 8;
  double lora_dropout = 0;
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_lora_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};
  TokenIndices trainable_token_indices = {};
  bool ensure_weight_tying = false;

  operator AdapterConfig() const;
};

struct LoHaConfig {
  int64_t r = 8;
  double alpha = 8;
  double rank_dropout = 0;
  double module_dropout = 0;
  bool use_effective_conv2d = false;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  bool init_weights = true;
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct LoKrConfig {
  int64_t r = 8;
  double alpha = 8;
  double rank_dropout = 0;
  double module_dropout = 0;
  bool use_effective_conv2d = false;
  bool decompose_both = false;
  int64_t decompose_factor = -1;
  bool rank_dropout_scale = false;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  FlagOrName init_weights = true;  ///< or "lycoris"
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct IA3Config {
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  /// Those of the targets whose input is scaled. Left alone: what PEFT has for the model type.
  ModuleNames feedforward_modules = {};
  bool fan_in_fan_out = false;
  bool init_ia3_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct LNTuningConfig {
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// One of `r` and `oft_block_size` is 0.
struct OFTConfig {
  int64_t r = 0;
  int64_t oft_block_size = 32;
  double module_dropout = 0;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_weights = true;
  bool coft = false;
  double eps = 6e-5;
  bool block_share = false;
  bool use_cayley_neumann = true;
  int64_t num_cayley_neumann_terms = 5;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// One of `boft_block_size` and `boft_block_num` is 0.
struct BOFTConfig {
  int64_t boft_block_size = 4;
  int64_t boft_block_num = 0;
  int64_t boft_n_butterfly_factor = 1;
  double boft_dropout = 0;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct HRAConfig {
  int64_t r = 8;
  bool apply_GS = false;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct VeraConfig {
  int64_t r = 256;
  ModuleNames target_modules = {};
  int64_t projection_prng_key = 0;
  bool save_projection = true;
  double vera_dropout = 0;
  double d_initial = 0.1;
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct VBLoRAConfig {
  int64_t r = 4;
  int64_t num_vectors = 256;
  int64_t vector_length = 256;
  int64_t topk = 2;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  bool save_only_topk_weights = false;
  double vblora_dropout = 0;
  std::string bias = "none";
  bool fan_in_fan_out = false;
  double init_vector_bank_bound = 0.02;
  double init_logits_std = 0.1;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct MissConfig {
  int64_t r = 64;
  double miss_dropout = 0;
  int64_t mini_r = 1;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  FlagOrName init_weights = true;  ///< or "bat", "mini"
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct FourierFTConfig {
  int64_t n_frequency = 1000;
  double scaling = 150;
  int64_t random_loc_seed = 777;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_weights = false;
  std::map<std::string, int64_t> n_frequency_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct RandLoraConfig {
  int64_t r = 32;
  ModuleNames target_modules = {};
  int64_t projection_prng_key = 0;
  bool save_projection = true;
  bool sparse = false;
  bool very_sparse = false;
  double randlora_dropout = 0;
  double randlora_alpha = 640;
  std::string bias = "none";
  bool fan_in_fan_out = false;
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct ShiraConfig {
  int64_t r = 32;
  std::string mask_type = "random";
  std::optional<int64_t> random_seed = {};
  ModuleNames target_modules = {};
  bool fan_in_fan_out = false;
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct RoadConfig {
  std::string variant = "road_1";  ///< or "road_2", "road_4"
  int64_t group_size = 64;
  ModuleNames target_modules = {};
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct C3AConfig {
  int64_t block_size = 256;
  ModuleNames target_modules = {};
  std::string bias = "none";
  FlagOrName init_weights = "xavier_uniform";  ///< or "gaussian", "kaiming_uniform", true, false
  std::map<std::string, int64_t> block_size_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct HiraConfig {
  int64_t r = 32;
  double hira_dropout = 0;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  bool fan_in_fan_out = false;
  FlagOrName init_weights = true;  ///< or "gaussian"
  std::map<std::string, int64_t> rank_pattern = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// `n_skills` LoRA adapters, mixed by the task of each row.
struct PolyConfig {
  int64_t r = 8;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  bool init_weights = true;
  std::string poly_type = "poly";
  int64_t n_tasks = 1;
  int64_t n_skills = 4;
  int64_t n_splits = 1;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// LLaMA-Adapter; both numbers must be set.
struct AdaptionPromptConfig {
  std::string target_modules = {};
  std::optional<int64_t> adapter_len = {};
  std::optional<int64_t> adapter_layers = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct TrainableTokensConfig {
  std::vector<int64_t> token_indices = {};
  ModuleNames target_modules = {};
  bool init_weights = true;
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
