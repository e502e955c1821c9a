#include "bench/decode_rows.h"

#include <filesystem>

#include "command.h"
#include "graft/model.h"

namespace graft::cli::bench {
namespace {

/// SmolLM2-135M's sizes.
ordered_json config_of(bool tiny) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", tiny ? 64 : 49152},
          {"hidden_size", tiny ? 24 : 576},
          {"intermediate_size", tiny ? 32 : 1536},
          {"num_hidden_layers", tiny ? 2 : 30},
          {"num_attention_heads", tiny ? 3 : 9},
          {"num_key_value_heads", tiny ? 1 : 3},
          {"max_position_embeddings", 2048},
          {"rope_theta", 100000.0},
          {"tie_word_embeddings", true},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace

std::vector<Row> decode_rows(bool tiny, const std::string& model_file) {
  if (tiny && !model_file.empty()) throw WrongUsage("--tiny makes a model of its own: leave out --model");
  const int64_t prompt = tiny ? 6 : 64, tokens = tiny ? 4 : 64;
  const auto file = model_file.empty() ? model_file : std::filesystem::absolute(model_file).string();
  const auto config =
      file.empty() ? config_of(tiny) : ordered_json::parse(Config::from_pretrained(file).dump());
  const auto vocabulary = config.at("vocab_size").get<int64_t>();
  const auto row = [&](const std::string& name, int64_t batch, int64_t new_tokens) {
    const auto ids = whole_numbers({batch, prompt}, vocabulary);
    const bool decodes = new_tokens > 1;
    return Row{.name = name,
               .work = "generate",
               .config = config,
               .inputs = {{"input_ids", ids}},
               .tolerance = 1e-7,
               .goals = {.steady = decodes ? 1 / 1.3 : 0, .llama_cpp = decodes ? 0.8 : 0},
               .new_tokens = new_tokens,
               .model_file = file};
  };
  return {row("smollm2-first-token", 1, 1), row("smollm2-decode-1", 1, tokens),
          row("smollm2-decode-8", 8, tokens)};
}

}  // namespace graft::cli::bench
