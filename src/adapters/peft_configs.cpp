// Fields go by name into the JSON that AdapterConfig reads, so that there is one place where they are
// checked.
#include <nlohmann/json.hpp>

#include "graft/adapter_config.h"
#include "graft/error.h"

namespace graft {
namespace {

using nlohmann::json;

json value_of(const ModuleNames& names) {
  if (names.pattern()) return *names.pattern();
  return names.is_set() ? json(names.names()) : json();
}
json value_of(const FlagOrName& value) {
  return value.name().empty() ? json(value.flag()) : json(value.name());
}
json value_of(const TokenIndices& indices) {
  if (!indices.tokens.empty() && !indices.by_layer.empty())
    throw UsageError("[adapters] TokenIndices has tokens and tokens by layer: it can have one of the two");
  if (!indices.by_layer.empty()) return indices.by_layer;
  return indices.tokens.empty() ? json() : json(indices.tokens);
}
json value_of(const RankOrShare& value) {
  return value.is_share() ? json(value.value()) : json(static_cast<int64_t>(value.value()));
}
json value_of(const std::map<std::string, RankOrShare>& by_pattern) {
  json values;
  for (const auto& [pattern, value] : by_pattern) values[pattern] = value_of(value);
  return values;
}
template <class T>
json value_of(const std::optional<T>& value) {
  if constexpr (std::is_same_v<T, RankOrShare>)
    return value ? value_of(*value) : json();
  else
    return value ? json(*value) : json();
}
json value_of(const std::string& text) { return text.empty() ? json() : json(text); }
json value_of(const std::optional<VeloraConfig>& config) {
  if (!config) return {};
  return {{"num_groups", config->num_groups}, {"scale", config->scale}, {"init_type", config->init_type}};
}
json value_of(const std::optional<BdLoraConfig>& config) {
  if (!config) return {};
  return {{"target_modules_bd_a", config->target_modules_bd_a},
          {"target_modules_bd_b", config->target_modules_bd_b},
          {"nblocks", config->nblocks},
          {"match_strict", config->match_strict}};
}
json value_of(const std::optional<KasaConfig>& config) {
  if (!config) return {};
  return {{"beta", config->beta}, {"gamma", config->gamma}};
}
json value_of(const std::optional<ArrowConfig>& config) {
  if (!config) return {};
  return {{"top_k", config->top_k},
          {"router_temperature", config->router_temperature},
          {"use_gks", config->use_gks},
          {"task_adapter_names", config->task_adapter_names},
          {"gks_adapter_names", config->gks_adapter_names},
          {"rng_seed", config->rng_seed ? json(*config->rng_seed) : json()}};
}
template <class T>
json value_of(const std::vector<T>& list) {
  return list.empty() ? json() : json(list);
}
template <class T>
json value_of(const T& value) {
  return value;
}

/// `names` is the list of arguments as it stands in the source: "r, target_modules".
template <class... T>
AdapterConfig from_fields(std::string_view label, std::string_view type, std::string_view names,
                          const T&... fields) {
  json values{{"peft_type", type}};
  const auto add = [&](json value) {
    const auto end = names.find(',');
    const std::string name(names.substr(0, end));
    names.remove_prefix(end == std::string_view::npos ? names.size() : names.find_first_not_of(' ', end + 1));
    if (!value.is_null()) values[name] = std::move(value);
  };
  (add(value_of(fields)), ...);
  return AdapterConfig::from_json(values.dump(), label);
}

}  // namespace

#define GRAFT_CONFIG(Config, type, ...) \
  Config::operator AdapterConfig() const { return from_fields(#Config, type, #__VA_ARGS__, __VA_ARGS__); }

GRAFT_CONFIG(LoraConfig, "LORA", r, target_modules, exclude_modules, lora_alpha, lora_dropout, bias,
             use_rslora, use_dora, lora_bias, fan_in_fan_out, init_lora_weights, rank_pattern, alpha_pattern,
             layers_to_transform, layers_pattern, modules_to_save, task_type, trainable_token_indices,
             ensure_weight_tying, alora_invocation_tokens, target_parameters, layer_replication, use_bdlora,
             velora_config, kasa_config, arrow_config, use_qalora, qalora_group_size)
GRAFT_CONFIG(AdaLoraConfig, "ADALORA", init_r, target_r, tinit, tfinal, deltaT, beta1, beta2, orth_reg_weight,
             total_step, target_modules, exclude_modules, lora_alpha, lora_dropout, bias, fan_in_fan_out,
             init_lora_weights, layers_to_transform, layers_pattern, modules_to_save, task_type,
             trainable_token_indices, ensure_weight_tying)
GRAFT_CONFIG(LoHaConfig, "LOHA", r, alpha, rank_dropout, module_dropout, use_effective_conv2d, target_modules,
             exclude_modules, init_weights, rank_pattern, alpha_pattern, layers_to_transform, layers_pattern,
             modules_to_save, task_type)
GRAFT_CONFIG(LoKrConfig, "LOKR", r, alpha, rank_dropout, module_dropout, use_effective_conv2d, decompose_both,
             decompose_factor, rank_dropout_scale, target_modules, exclude_modules, init_weights,
             rank_pattern, alpha_pattern, layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(IA3Config, "IA3", target_modules, exclude_modules, feedforward_modules, fan_in_fan_out,
             init_ia3_weights, modules_to_save, task_type)
GRAFT_CONFIG(LNTuningConfig, "LN_TUNING", target_modules, exclude_modules, modules_to_save, task_type)
GRAFT_CONFIG(OFTConfig, "OFT", r, oft_block_size, module_dropout, target_modules, exclude_modules, bias,
             fan_in_fan_out, init_weights, coft, eps, block_share, use_cayley_neumann,
             num_cayley_neumann_terms, layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(BOFTConfig, "BOFT", boft_block_size, boft_block_num, boft_n_butterfly_factor, boft_dropout,
             target_modules, exclude_modules, bias, fan_in_fan_out, init_weights, layers_to_transform,
             layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(HRAConfig, "HRA", r, apply_GS, target_modules, exclude_modules, bias, init_weights,
             layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(VeraConfig, "VERA", r, target_modules, projection_prng_key, save_projection, vera_dropout,
             d_initial, bias, fan_in_fan_out, init_weights, layers_to_transform, layers_pattern,
             modules_to_save, task_type)
GRAFT_CONFIG(VBLoRAConfig, "VBLORA", r, num_vectors, vector_length, topk, target_modules, exclude_modules,
             save_only_topk_weights, vblora_dropout, bias, fan_in_fan_out, init_vector_bank_bound,
             init_logits_std, layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(MissConfig, "MISS", r, miss_dropout, mini_r, target_modules, exclude_modules, bias, init_weights,
             layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(FourierFTConfig, "FOURIERFT", n_frequency, scaling, random_loc_seed, target_modules,
             exclude_modules, bias, fan_in_fan_out, init_weights, n_frequency_pattern, layers_to_transform,
             layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(RandLoraConfig, "RANDLORA", r, target_modules, projection_prng_key, save_projection, sparse,
             very_sparse, randlora_dropout, randlora_alpha, bias, fan_in_fan_out, init_weights,
             layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(ShiraConfig, "SHIRA", r, mask_type, random_seed, target_modules, fan_in_fan_out, init_weights,
             modules_to_save, task_type)
GRAFT_CONFIG(RoadConfig, "ROAD", variant, group_size, target_modules, init_weights, modules_to_save,
             task_type)
GRAFT_CONFIG(C3AConfig, "C3A", block_size, target_modules, bias, init_weights, block_size_pattern,
             layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(HiraConfig, "HIRA", r, hira_dropout, target_modules, exclude_modules, fan_in_fan_out,
             init_weights, rank_pattern, layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(DeloraConfig, "DELORA", r, delora_lambda, module_dropout, target_modules, exclude_modules, bias,
             init_weights, layers_to_transform, layers_pattern, rank_pattern, lambda_pattern, modules_to_save,
             task_type)
GRAFT_CONFIG(BeftConfig, "BEFT", target_modules, init_weights, modules_to_save, task_type)
GRAFT_CONFIG(GraloraConfig, "GRALORA", r, hybrid_r, target_modules, alpha, gralora_dropout, gralora_k,
             fan_in_fan_out, bias, init_weights, layers_to_transform, layers_pattern, modules_to_save,
             task_type)
GRAFT_CONFIG(DeftConfig, "DEFT", r, target_modules, exclude_modules, decomposition_method, init_scale, alpha,
             para, fan_in_fan_out, deft_dropout, init_weights, layers_to_transform, layers_pattern, bias,
             modules_to_save, task_type)
GRAFT_CONFIG(PveraConfig, "PVERA", r, target_modules, projection_prng_key, save_projection, pvera_dropout,
             d_initial, fan_in_fan_out, bias, init_weights, layers_to_transform, layers_pattern,
             sample_at_inference, modules_to_save, task_type)
GRAFT_CONFIG(GloraConfig, "GLORA", r, target_modules, bias, config_A_B, config_C, config_D_E, init_weights,
             modules_to_save, task_type)
GRAFT_CONFIG(WaveFTConfig, "WAVEFT", n_frequency, scaling, wavelet_family, use_idwt, random_loc_seed,
             fan_in_fan_out, target_modules, exclude_modules, bias, layers_to_transform, layers_pattern,
             n_frequency_pattern, proportional_parameters, init_weights, modules_to_save, task_type)
GRAFT_CONFIG(SupertuningConfig, "SUPERTUNING", target_modules, sparsity, select_top, r, lora_alpha,
             lora_dropout, init_weights, save_precomputed_indices, modules_to_save, task_type)
GRAFT_CONFIG(PeanutConfig, "PEANUT", r, depth, act_fn, scaling, target_modules, exclude_modules,
             layers_to_transform, layers_pattern, init_weights, modules_to_save, task_type)
GRAFT_CONFIG(LilyConfig, "LILY", r, stride_A, num_B, scaling, target_modules, exclude_modules,
             layers_to_transform, layers_pattern, init_weights, modules_to_save, task_type)
GRAFT_CONFIG(TinyLoraConfig, "TINYLORA", r, u, weight_tying, projection_seed, save_projection, init_v_bound,
             target_modules, tinylora_dropout, fan_in_fan_out, bias, init_weights, layers_to_transform,
             layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(PsoftConfig, "PSOFT", r, target_modules, exclude_modules, psoft_alpha, psoft_dropout,
             fan_in_fan_out, ab_svd_init, psoft_svd, psoft_svd_lowrank_niter, random_seed, psoft_orth,
             psoft_mag_b, psoft_mag_a, use_cayley_neumann, num_cayley_neumann_terms, cayley_neumann_eps,
             init_weights, layers_to_transform, layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(UniLoraConfig, "UNILORA", r, proj_seed, theta_d_length, target_modules, unilora_dropout,
             fan_in_fan_out, bias, init_theta_d_bound, init_weights, save_indices, layers_to_transform,
             layers_pattern, modules_to_save, task_type)
GRAFT_CONFIG(OSFConfig, "OSF", effective_rank, target_modules, rank_pattern, init_weights, modules_to_save,
             task_type)
GRAFT_CONFIG(FrodConfig, "FROD", target_modules, projection_prng_key, save_projection, frod_dropout,
             fan_in_fan_out, bias, init_weights, layers_to_transform, layers_pattern, sparse_rate,
             regularization_alpha, progressbar, modules_to_save, task_type)
GRAFT_CONFIG(AdamssConfig, "ADAMSS", r, num_subspaces, subspace_rank, target_modules, init_weights,
             modules_to_save, layers_to_transform, layers_pattern, use_asa, asa_target_subspaces, init_warmup,
             final_warmup, mask_interval, asa_importance_beta, asa_uncertainty_beta, asa_schedule_exponent,
             use_dynamic_rank, svd_threshold, random_seed, task_type)
GRAFT_CONFIG(XLoraConfig, "XLORA", hidden_size, adapters, enable_softmax, enable_softmax_topk,
             layerwise_scalings, xlora_depth, xlora_size, xlora_dropout_p, use_trainable_adapters,
             softmax_temperature, top_k_lora, scaling_pass_value, global_scaling_weight, task_type)
GRAFT_CONFIG(PolyConfig, "POLY", r, target_modules, exclude_modules, init_weights, poly_type, n_tasks,
             n_skills, n_splits, modules_to_save, task_type)
GRAFT_CONFIG(AdaptionPromptConfig, "ADAPTION_PROMPT", target_modules, adapter_len, adapter_layers, task_type)
GRAFT_CONFIG(TrainableTokensConfig, "TRAINABLE_TOKENS", token_indices, target_modules, init_weights,
             task_type)
GRAFT_CONFIG(PromptTuningConfig, "PROMPT_TUNING", num_virtual_tokens, token_dim, num_transformer_submodules,
             num_attention_heads, num_layers, prompt_tuning_init, prompt_tuning_init_text,
             tokenizer_name_or_path, modules_to_save, task_type)
GRAFT_CONFIG(PrefixTuningConfig, "PREFIX_TUNING", num_virtual_tokens, token_dim, num_transformer_submodules,
             num_attention_heads, num_layers, init_weights, encoder_hidden_size, prefix_projection,
             modules_to_save, task_type)
GRAFT_CONFIG(PromptEncoderConfig, "P_TUNING", num_virtual_tokens, token_dim, num_transformer_submodules,
             num_attention_heads, num_layers, encoder_reparameterization_type, encoder_hidden_size,
             encoder_num_layers, encoder_dropout, modules_to_save, task_type)
GRAFT_CONFIG(MultitaskPromptTuningConfig, "MULTITASK_PROMPT_TUNING", num_virtual_tokens, token_dim,
             num_transformer_submodules, num_attention_heads, num_layers, prompt_tuning_init,
             prompt_tuning_init_text, tokenizer_name_or_path, prompt_tuning_init_state_dict_path,
             prompt_tuning_init_task, num_ranks, num_tasks, modules_to_save, task_type)
GRAFT_CONFIG(CPTConfig, "CPT", num_virtual_tokens, token_dim, num_transformer_submodules, num_attention_heads,
             num_layers, cpt_token_ids, cpt_mask, cpt_tokens_type_mask, opt_weighted_loss_type,
             opt_loss_decay_factor, opt_projection_epsilon, opt_projection_format_epsilon,
             tokenizer_name_or_path, modules_to_save, task_type)
GRAFT_CONFIG(CartridgeConfig, "CARTRIDGE", num_virtual_tokens, token_dim, num_transformer_submodules,
             num_attention_heads, num_layers, num_frozen_tokens, modules_to_save, task_type)

}  // namespace graft
