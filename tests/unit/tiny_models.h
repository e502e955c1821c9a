// A model of every class in the registry, small enough for unit tests, and something to train it on.
#pragma once
#include <ATen/ATen.h>

#include <map>
#include <stdexcept>

#include "models/architecture.h"

namespace graft::testing_tools {

inline constexpr int64_t kTinyBlocks = 4, kTinyTokens = 37;

/// config.json of a model type, without the class. A type without a row is an error that asks for one.
inline std::string tiny_config(const std::string& type) {
  static const std::string text =
      R"("vocab_size": 37, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2)";
  static const std::string usual =
      text + R"(, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3,
                "max_position_embeddings": 32)";
  static const std::string gated = usual + R"(, "intermediate_size": 20, "num_key_value_heads": 1)";
  static const std::string image =
      R"("hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "image_size": 16, "patch_size": 8)";
  static const std::map<std::string, std::string> rows{
      {"llama", gated},
      {"mistral", gated},
      {"qwen2", gated},
      {"qwen3", gated + R"(, "head_dim": 8)"},
      {"gemma", gated + R"(, "head_dim": 8)"},
      {"gemma2", gated + R"(, "head_dim": 8, "query_pre_attn_scalar": 8)"},
      {"phi3", gated},
      {"gpt2", text + R"(, "n_embd": 24, "n_layer": 4, "n_head": 3, "n_positions": 32)"},
      {"opt", usual + R"(, "ffn_dim": 20, "word_embed_proj_dim": 24)"},
      {"gpt_neox", usual + R"(, "intermediate_size": 20)"},
      {"bloom", text + R"(, "hidden_size": 24, "n_layer": 4, "n_head": 3)"},
      {"falcon", usual},
      {"bert", usual + R"(, "intermediate_size": 20)"},
      {"roberta", usual + R"(, "intermediate_size": 20)"},
      {"distilbert",
       text + R"(, "dim": 24, "hidden_dim": 20, "n_layers": 4, "n_heads": 3, "max_position_embeddings": 32)"},
      {"vit", image + R"(, "intermediate_size": 20)"},
      {"dinov2", image},
      {"resnet", R"("embedding_size": 4, "hidden_sizes": [4, 6], "depths": [2, 2], "layer_type": "basic")"},
      {"convnext", R"("hidden_sizes": [4, 6], "depths": [2, 2], "num_stages": 2, "patch_size": 2)"},
      {"t5", text + R"(, "d_model": 24, "d_kv": 8, "d_ff": 20, "num_layers": 4, "num_decoder_layers": 4,
                        "num_heads": 3, "decoder_start_token_id": 0)"},
  };
  const auto found = rows.find(type);
  if (found == rows.end()) throw std::out_of_range("tests/unit/tiny_models.h has no row for " + type);
  return found->second;
}

inline std::shared_ptr<PreTrainedModel> tiny_model(const Architecture& architecture, uint64_t seed = 3) {
  const std::string type(architecture.model_type), name(architecture.name);
  at::manual_seed(seed);
  return AutoModelForAny::from_config(Config::from_json(R"({"architectures": [")" + name +
                                                        R"("], "model_type": ")" + type + R"(", )" +
                                                        tiny_config(type) + "}"));
}

/// Two rows, with labels where the class has a loss.
inline ModelInputs tiny_batch(const Architecture& architecture, uint64_t seed = 5) {
  at::manual_seed(seed);
  ModelInputs inputs;
  const auto tokens = at::randint(3, kTinyTokens, {2, 6}, at::kLong), classes = at::arange(2, at::kLong);
  if (tiny_config(std::string(architecture.model_type)).find("vocab_size") == std::string::npos)
    inputs.pixel_values = at::randn({2, 3, 16, 16});
  else
    inputs.input_ids = tokens;
  switch (architecture.task) {
    case Task::base:
      if (architecture.name == "T5Model") inputs.decoder_input_ids = tokens.slice(1, 0, 4);
      break;
    case Task::causal_lm:
    case Task::masked_lm:
    case Task::seq2seq_lm:
      inputs.labels = tokens;
      break;
    case Task::token_classification:
      inputs.labels = tokens % 2;
      break;
    case Task::sequence_classification:
    case Task::image_classification:
      inputs.labels = classes;
      break;
  }
  return inputs;
}

/// What there is to be made small: the loss, or the size of what a body without a head gives.
inline at::Tensor tiny_loss(const ModelOutput& output) {
  return output.loss.defined() ? output.loss : output.last_hidden_state.square().mean();
}

}  // namespace graft::testing_tools
