#include "adapters/methods/prompt_tuning.h"

#include <ATen/ATen.h>

#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"
#include "graft/tokenizer.h"

namespace graft::adapters {
namespace {

namespace fs = std::filesystem;

/// The text's tokens, repeated or cut until they are `count`.
at::Tensor text_tokens(const AdapterConfig& config, int64_t count) {
  const auto where = config.string("tokenizer_name_or_path");
  const std::string why =
      "[adapters] \"prompt_tuning_init\" is \"TEXT\", and \"tokenizer_name_or_path\" (" + where + ") ";
  if (!fs::exists(where))
    throw ConfigError(why +
                      "is not a folder here: download the tokenizer and name its folder, or start from "
                      "\"RANDOM\" or \"SAMPLE_VOCAB\"");
  std::vector<int64_t> ids;
  try {
    ids = Tokenizer::from_pretrained(where)->encode(config.string("prompt_tuning_init_text")).ids;
  } catch (const Error& error) {
    throw ConfigError(why + "cannot be read: " + error.what());
  }
  if (ids.empty()) throw ConfigError("[adapters] \"prompt_tuning_init_text\" has no tokens to start from");
  std::vector<int64_t> wanted;
  wanted.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) wanted.push_back(ids[static_cast<size_t>(i) % ids.size()]);
  return at::tensor(wanted, at::kLong);
}

}  // namespace

at::Tensor fresh_prompt(const PromptBuild& build, at::IntArrayRef shape) {
  if (!build.source.fresh()) return {};
  const at::NoGradGuard no_grad;
  // Drawn in any case: the draws after it are PEFT's.
  auto drawn = fresh_tensor("prompt_embeddings", shape).normal_();
  const auto init = build.config.string("prompt_tuning_init");
  if ((init != "TEXT" && init != "SAMPLE_VOCAB") || build.config.boolean("inference_mode")) return drawn;
  const int64_t vocab = build.model.config().integer("vocab_size");
  const auto ids = init == "TEXT" ? text_tokens(build.config, shape[0])
                                  : at::randint(0, vocab, {shape[0]}, at::TensorOptions(at::kLong));
  if (const auto last = ids.max().item<int64_t>(); last >= vocab)
    throw ConfigError("[adapters] \"prompt_tuning_init_text\" has the token " + std::to_string(last) +
                      ", and the model knows " + std::to_string(vocab) +
                      ": the tokenizer is another model's");
  return build.model.input_embeddings(ids.to(build.model.device())).to(at::kFloat);
}

void check_prompt_tuning(const AdapterConfig& config) {
  check_prompt(config);
  if (config.string("prompt_tuning_init") != "TEXT") return;
  for (const char* field : {"tokenizer_name_or_path", "prompt_tuning_init_text"})
    if (!config.has(field))
      throw ConfigError("[adapters] \"prompt_tuning_init\" is \"TEXT\": set \"" + std::string(field) +
                        "\" too");
}

Method prompt_tuning_method() {
  return {.type = "PROMPT_TUNING",
          .fields = prompt_fields({{"prompt_tuning_init", "RANDOM", {"RANDOM", "TEXT", "SAMPLE_VOCAB"}},
                                   {"prompt_tuning_init_text"},
                                   {"tokenizer_name_or_path"},
                                   {"tokenizer_kwargs", nullptr, {}, Field::Rule::default_only}}),
          .check = check_prompt_tuning,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            const std::vector<int64_t> shape{total_virtual_tokens(build.config),
                                             build.config.integer("token_dim")};
            return std::make_shared<Prompt>(build, shape, fresh_prompt(build, shape));
          },
          .data_fields = {"prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path",
                          "num_attention_heads", "num_layers"}};
}

}  // namespace graft::adapters
