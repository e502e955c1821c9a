#include "bench/decode.h"

#include <ATen/ATen.h>

#include "command.h"
#include "graft/generate.h"
#include "graft/model.h"
#include "inputs.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;

/// A whole call of generate(): the prompt, then the likeliest token again and again.
class DecodeWork : public Work {
 public:
  explicit DecodeWork(const ordered_json& request)
      : model_(AutoModelForCausalLM::from_pretrained(folder_of(request) / "model")),
        prompt_(read_inputs(folder_of(request) / "inputs.safetensors", *model_)) {
    config_.max_new_tokens = request.at("new_tokens").get<int64_t>();
    const auto options = options_for(request.at("how"));
    if (options.backend != Backend::eager) compiled_.emplace(model_, options);
  }

  void call() override {
    sequences_ = at::Tensor();
    sequences_ = compiled_ ? compiled_->generate(prompt_, config_) : generate(*model_, prompt_, config_);
  }
  /// As numbers that can be compared: one other token is a large difference.
  NamedTensors outputs() const override { return {{"sequences", sequences_.to(at::kFloat)}}; }

 private:
  std::shared_ptr<PreTrainedModel> model_;
  ModelInputs prompt_;
  GenerationConfig config_;  // no end token: all generate equally much
  std::optional<Decoder> compiled_;
  at::Tensor sequences_;
};

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

std::unique_ptr<Work> load_decode_work(const ordered_json& request) {
  return std::make_unique<DecodeWork>(request);
}

}  // namespace graft::cli::bench
