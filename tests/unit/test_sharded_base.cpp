// What stays of a model that was trained with its frozen weights shared out. For several processes:
// tests/cli/test_sharded_base.py starts it under `graft launch`.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "graft/trainer.h"

namespace graft {
namespace {

class Rows : public TrainingData {
 public:
  int64_t batches() const override { return 3; }
  ModelInputs batch(int64_t /*epoch*/, int64_t index) const override {
    ModelInputs inputs;
    inputs.input_ids = (at::arange(12, at::kLong).view({2, 6}) + index) % 20;
    return inputs;
  }
};

std::shared_ptr<PreTrainedModel> tiny() {
  at::manual_seed(7);
  return AutoModelForAny::from_config(Config::from_json(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 20, "hidden_size": 8,
          "intermediate_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2})"));
}

TEST(ShardedBaseOfProcesses, IsGatheredAsItWas) {
  if (ProcessGroupOptions::from_environment().size == 1) GTEST_SKIP() << "for `graft launch -n 2`";
  const auto group = ProcessGroup::connect();
  const auto model = tiny(), same = tiny();
  const auto peft = get_peft_model(model, LoraConfig{.r = 2, .target_modules = {"q_proj"}});
  Trainer trainer(peft, {.max_steps = 3, .processes = group, .zero_stage = 3}, std::make_shared<Rows>());
  trainer.train();
  EXPECT_LT(trainer.base_memory().held, trainer.base_memory().whole);
  trainer.gather_weights();
  EXPECT_EQ(trainer.base_memory().whole, 0);
  const auto mine = model->unique_parameters(), want = same->unique_parameters();
  std::map<std::string, at::Tensor> by_name(mine.begin(), mine.end());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(by_name.at(name), tensor)) << name;
  // It is an ordinary model again.
  const auto merged = peft->merge_and_unload();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(merged->forward(Rows().batch(0, 0)).logits.isfinite().all().item<bool>());
  group->barrier();
}

}  // namespace
}  // namespace graft
