// Configurations of adapters, continued: methods that change weights or what layers give, as plain structs
// with PEFT's names and defaults. adapter_config.h says how they are used.
#pragma once
#include "graft/adapter_config.h"

namespace graft {

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

struct BeftConfig {
  ModuleNames target_modules = {};
  bool init_weights = true;
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

struct WaveFTConfig {
  int64_t n_frequency = 2592;
  double scaling = 25;
  std::string wavelet_family = "db1";  ///< up to "db10", "sym2" to "sym10", "coif1" to "coif5"
  bool use_idwt = true;
  int64_t random_loc_seed = 777;
  bool fan_in_fan_out = false;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  std::string bias = "none";
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  std::map<std::string, int64_t> n_frequency_pattern = {};
  bool proportional_parameters = false;
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct SupertuningConfig {
  ModuleNames target_modules = {};
  double sparsity = 0.99;
  bool select_top = true;
  std::optional<int64_t> r = {};
  std::optional<double> lora_alpha = {};
  double lora_dropout = 0;
  bool init_weights = true;
  bool save_precomputed_indices = true;
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

struct PsoftConfig {
  int64_t r = 32;
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  double psoft_alpha = 32;
  double psoft_dropout = 0;
  bool fan_in_fan_out = false;
  std::string ab_svd_init = "psoft_init";  ///< or "pissa_init"
  std::string psoft_svd = "full";          ///< or "lowrank"
  int64_t psoft_svd_lowrank_niter = 10;
  int64_t random_seed = 0;
  bool psoft_orth = true;
  bool psoft_mag_b = true;
  bool psoft_mag_a = true;
  bool use_cayley_neumann = false;
  int64_t num_cayley_neumann_terms = 5;
  std::optional<double> cayley_neumann_eps = {};
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

/// How many singular values, or which share of them: 3 is three of them, 0.5 half.
class RankOrShare {
 public:
  RankOrShare(int count) : RankOrShare(int64_t{count}) {}
  RankOrShare(int64_t count) : value_(static_cast<double>(count)) {}
  RankOrShare(double share) : value_(share), is_share_(true) {}

  double value() const { return value_; }
  bool is_share() const { return is_share_; }

 private:
  double value_;
  bool is_share_ = false;
};

struct OSFConfig {
  std::optional<RankOrShare> effective_rank = {};
  ModuleNames target_modules = {};
  std::map<std::string, RankOrShare> rank_pattern = {};
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

struct FrodConfig {
  ModuleNames target_modules = {};
  int64_t projection_prng_key = 0;
  bool save_projection = true;
  double frod_dropout = 0;
  bool fan_in_fan_out = false;
  std::string bias = "none";
  bool init_weights = true;
  std::vector<int64_t> layers_to_transform = {};
  std::vector<std::string> layers_pattern = {};
  double sparse_rate = 0.01;
  double regularization_alpha = 1e-3;
  bool progressbar = true;  ///< PEFT's; graft shows none
  std::vector<std::string> modules_to_save = {};
  std::string task_type = {};

  operator AdapterConfig() const;
};

}  // namespace graft
