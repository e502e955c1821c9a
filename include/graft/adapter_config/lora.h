// LoRA with its variants, and methods that choose among several LoRA adapters or ranks.
#pragma once
#include "graft/adapter_config/config.h"

namespace graft {

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

/// Arrow: a router over LoRA adapters, which are folders; each token goes to the `top_k` that it points along
/// most. With `use_gks` what the general ones have in common is taken out of the others.
struct ArrowConfig {
  int64_t top_k = 3;
  double router_temperature = 1;
  bool use_gks = false;
  std::vector<std::string> task_adapter_names = {};
  std::vector<std::string> gks_adapter_names = {};
  std::optional<int64_t> rng_seed = {};
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
  /// A router: without `target_modules` it is on the layers of its adapters, and of their rank.
  std::optional<ArrowConfig> arrow_config = {};
  /// QA-LoRA, which PEFT makes on quantised bases only: of files. A fresh adapter is plain LoRA, as in PEFT.
  bool use_qalora = false;
  int64_t qalora_group_size = 16;

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

/// X-LoRA: a classifier mixes LoRA adapters token by token. They are folders, by names "0", "1", ...
struct XLoraConfig {
  int64_t hidden_size = 4096;  ///< of the base model
  std::map<std::string, std::string> adapters = {};
  bool enable_softmax = true;
  bool enable_softmax_topk = false;
  bool layerwise_scalings = false;
  int64_t xlora_depth = 1;
  int64_t xlora_size = 2048;
  double xlora_dropout_p = 0.2;
  bool use_trainable_adapters = false;
  double softmax_temperature = 1;
  std::optional<int64_t> top_k_lora = {};
  double scaling_pass_value = 0;
  double global_scaling_weight = 1;
  std::string task_type = {};

  operator AdapterConfig() const;
};

}  // namespace graft
