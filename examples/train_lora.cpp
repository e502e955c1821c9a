// Fine-tunes a LoRA adapter on data of one's own: a tiny Llama learns to count upwards. The whole step is one
// compiled program.
//   train_lora OUT_DIR
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>

#include "graft/graft.h"

namespace {

constexpr auto kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 32, "pad_token_id": 0
})";

/// Rows such as 17 18 19 20 ...: the same batch for the same numbers, always.
class Counting : public graft::TrainingData {
 public:
  int64_t batches() const override { return 60; }
  graft::ModelInputs batch(int64_t epoch, int64_t index) const override {
    const auto start = (torch::arange(8) * 5 + index * 3 + epoch).unsqueeze(1);
    return {.input_ids = (start + torch::arange(16)) % 63 + 1};
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: train_lora OUT_DIR\n"), 2;
  torch::manual_seed(0);
  const auto model = graft::AutoModelForAny::from_config(graft::Config::from_json(kConfig));
  const auto peft = graft::get_peft_model(
      model, graft::LoraConfig{.r = 8, .target_modules = "all-linear", .lora_alpha = 16});
  graft::Trainer trainer{peft,
                         {.learning_rate = 2e-2,
                          .lr_scheduler_type = "cosine",
                          .warmup_steps = 5,
                          .num_train_epochs = 2,
                          .compile = {}},
                         std::make_shared<Counting>()};
  trainer.on_step([](const graft::TrainingStep& step) {
    if (step.step % 20 == 0)
      std::printf("step %3lld  loss %.3f\n", static_cast<long long>(step.step), step.loss);
  });
  const auto result = trainer.train();
  trainer.save_model(argv[1]);
  std::printf("from %.3f to %.3f; the adapter is in %s\n", result.losses.front(), result.losses.back(),
              argv[1]);
  return result.losses.back() < result.losses.front() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_lora: %s\n", error.what());
  return 1;
}
