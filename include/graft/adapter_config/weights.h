// Methods that scale, turn or replace weights, or add to chosen entries of them.
#pragma once
#include "graft/adapter_config/config.h"

namespace graft {

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

struct BeftConfig {
  ModuleNames target_modules = {};
  bool init_weights = true;
  std::vector<std::string> modules_to_save = {};
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

struct RoadConfig {
  std::string variant = "road_1";  ///< or "road_2", "road_4"
  int64_t group_size = 64;
  ModuleNames target_modules = {};
  bool init_weights = true;
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
