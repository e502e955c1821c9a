// Methods that add a product of small matrices to a weight, as LoRA does.
#pragma once
#include "graft/adapter_config/config.h"

namespace graft {

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

struct PveraConfig {
  int64_t r = 256;
  ModuleNames target_modules = {};
  int64_t projection_prng_key = 0;
  bool save_projection = true;
  double pvera_dropout = 0;
  double d_initial = 0.1;
  bool fan_in_fan_out = false;
  std::string bias = "none";
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  bool sample_at_inference = false;
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

struct UniLoraConfig {
  int64_t r = 4;
  int64_t proj_seed = 42;
  int64_t theta_d_length = 256;
  ModuleNames target_modules = {};
  double unilora_dropout = 0;
  bool fan_in_fan_out = false;
  std::string bias = "none";
  double init_theta_d_bound = 0.02;
  bool init_weights = true;
  bool save_indices = false;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct TinyLoraConfig {
  int64_t r = 2;
  int64_t u = 64;
  double weight_tying = 0;
  int64_t projection_seed = 42;
  bool save_projection = true;
  double init_v_bound = 0.02;
  ModuleNames target_modules = {};
  double tinylora_dropout = 0;
  bool fan_in_fan_out = false;
  std::string bias = "none";
  FlagOrName init_weights = true;  ///< or "uniform"
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct DeloraConfig {
  int64_t r = 8;
  int64_t delora_lambda = 15;
  double module_dropout = 0;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> lambda_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct GraloraConfig {
  int64_t r = 32;
  int64_t hybrid_r = 0;
  ModuleNames target_modules = {};
  double alpha = 64;
  double gralora_dropout = 0;
  int64_t gralora_k = 2;
  bool fan_in_fan_out = false;
  std::string bias = "none";
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct GloraConfig {
  int64_t r = 8;
  ModuleNames target_modules = {};
  std::string bias = "none";
  std::string config_A_B = "lora";      ///< or "vector", "constant", "none"
  std::string config_C = "lora";        ///< or "vector", "none"
  std::string config_D_E = "constant";  ///< or "vector", "none"
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct DeftConfig {
  int64_t r = 8;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string decomposition_method = "relu";  ///< or "qr"
  double init_scale = 1;
  std::optional<double> alpha = {};
  bool para = false;
  bool fan_in_fan_out = false;
  double deft_dropout = 0;
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::string bias = "none";
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct LilyConfig {
  int64_t r = 32;
  int64_t stride_A = 1;
  int64_t num_B = 2;
  double scaling = 1;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct PeanutConfig {
  int64_t r = 32;
  int64_t depth = 0;
  std::string act_fn = "relu";
  double scaling = 1;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

/// Rows of a weight in groups, each with a low-rank change of its own. graft reads the fields of its
/// allocation ("use_asa"), and trains all groups.
struct AdamssConfig {
  int64_t r = 100;
  int64_t num_subspaces = 5;
  int64_t subspace_rank = 1;
  ModuleNames target_modules = {};
  FlagOrName init_weights = "orthogonal";  ///< or false
  std::vector<std::string> modules_to_save = {};
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  bool use_asa = false;
  int64_t asa_target_subspaces = 50;
  int64_t init_warmup = 50;
  int64_t final_warmup = 1000;
  int64_t mask_interval = 100;
  double asa_importance_beta = 0.85;
  double asa_uncertainty_beta = 0.85;
  double asa_schedule_exponent = 3;
  bool use_dynamic_rank = false;
  double svd_threshold = 0.1;
  int64_t random_seed = 0;
  std::string task_type = {};

  operator AdapterConfig() const;
};

}  // namespace graft
