// Decoders small enough for unit tests, with noise on every weight, so that they do not say one token only.
#pragma once
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "graft/generate.h"

namespace graft::testing_tools {

inline constexpr int64_t kTinyVocabulary = 37;

/// "llama", "gpt2", "bloom" (linear biases) or "opt"; the same seed gives the same weights. `more` are
/// fields of config.json.
inline std::shared_ptr<PreTrainedModel> tiny_decoder(const std::string& type, uint64_t seed = 3,
                                                     const std::string& more = "") {
  nlohmann::json config{
      {"model_type", type}, {"vocab_size", kTinyVocabulary}, {"tie_word_embeddings", false}};
  if (type == "gpt2")
    config.update({{"architectures", {"GPT2LMHeadModel"}},
                   {"n_embd", 24},
                   {"n_layer", 2},
                   {"n_head", 3},
                   {"n_positions", 64}});
  else if (type == "bloom")
    config.update(
        {{"architectures", {"BloomForCausalLM"}}, {"hidden_size", 24}, {"n_layer", 2}, {"n_head", 3}});
  else
    config.update({{"hidden_size", 24},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 3},
                   {"max_position_embeddings", 64}});
  if (type == "llama")
    config.update(
        {{"architectures", {"LlamaForCausalLM"}}, {"intermediate_size", 20}, {"num_key_value_heads", 1}});
  if (type == "opt")
    config.update({{"architectures", {"OPTForCausalLM"}}, {"ffn_dim", 20}, {"word_embed_proj_dim", 24}});
  config.update(nlohmann::json::parse("{" + more + "}"));
  at::manual_seed(seed);
  auto model = AutoModelForAny::from_config(Config::from_json(config.dump()));
  const at::NoGradGuard no_grad;
  for (const auto& [path, parameter] : model->unique_parameters())
    parameter.add_(at::randn(parameter.sizes()) * 0.15);
  model->eval();
  return model;
}

/// A Llama with Lily, "lily", and LoRA, "lora", both strong; Lily's router looks at all tokens of a call.
inline std::shared_ptr<PeftModel> tiny_lily() {
  auto peft = std::make_shared<PeftModel>(tiny_decoder("llama"));
  const std::vector<std::string> targets{"q_proj", "v_proj", "down_proj"};
  peft->add_adapter("lily", LilyConfig{.r = 4, .num_B = 3, .target_modules = targets});
  peft->add_adapter("lora", LoraConfig{.r = 3, .target_modules = targets});
  const at::NoGradGuard no_grad;
  for (const auto* name : {"lily", "lora"})
    for (const auto& [key, tensor] : peft->trainable_tensors(name))
      tensor.add_(at::randn(tensor.sizes()) * (name[1] == 'i' ? 1.0 : 0.3));
  peft->eval();
  return peft;
}

/// Tokens that come again, so that there is something to look up.
inline std::vector<int64_t> tiny_prompt(int64_t length, uint64_t seed) {
  at::manual_seed(seed);
  const auto some = at::randint(3, kTinyVocabulary, {(length + 1) / 2}, at::kLong);
  const auto all = at::cat({some, some}).slice(0, 0, length).contiguous();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + length};
}

inline at::Tensor one_row(const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong).unsqueeze(0); }

inline std::vector<int64_t> tokens_in(const at::Tensor& tensor) {
  const auto flat = tensor.flatten().contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

}  // namespace graft::testing_tools
