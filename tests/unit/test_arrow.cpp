// Routers over LoRA adapters (Arrow) as data of a compiled program. tests/oracle/test_arrow.py has their
// results against PEFT.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graft/error.h"
#include "graft/graft.h"
#include "unit/temp_dir.h"
#include "unit/tiny_decoders.h"

namespace graft {
namespace {

using testing_tools::tiny_decoder;

std::string saved(const TempDir& dir, const std::string& name, const AdapterConfig& config, uint64_t seed) {
  const auto model = tiny_decoder("llama");
  at::manual_seed(seed);
  get_peft_model(model, config)->save_adapter(dir / name, "default");
  return (dir / name).string();
}

std::string saved_expert(const TempDir& dir, uint64_t seed) {
  const LoraConfig config{.r = 2, .target_modules = {"q_proj", "down_proj"}, .init_lora_weights = false};
  return saved(dir, "expert" + std::to_string(seed), config, seed);
}

TEST(Arrow, OtherRoutersAreTheSameProgram) {
  const at::NoGradGuard no_grad;
  const TempDir dir;
  std::vector<std::string> experts;
  for (uint64_t seed = 0; seed < 6; ++seed) experts.push_back(saved_expert(dir, seed));
  const auto router = [&](const std::string& name, std::vector<std::string> names, double temperature) {
    return saved(dir, name,
                 LoraConfig{.arrow_config = ArrowConfig{.top_k = 2,
                                                        .router_temperature = temperature,
                                                        .task_adapter_names = std::move(names)}},
                 1);
  };
  const auto first = router("first", {experts[0], experts[1], experts[2]}, 1.0);
  const auto second = router("second", {experts[3], experts[4], experts[5]}, 0.2);

  const auto peft = std::make_shared<PeftModel>(tiny_decoder("llama"));
  peft->eval();
  peft->load_adapter(first, "router");
  peft->load_adapter(experts[0], "plain");
  const auto fast = compile(peft, {.fullgraph = true});
  const ModelInputs inputs{.input_ids = at::arange(3, 21).view({3, 6})};
  std::vector<at::Tensor> seen;
  const auto check = [&](const AdapterCall& call = {}) {
    const auto got = fast(inputs, call).logits;
    EXPECT_TRUE(at::allclose(got, peft->forward(inputs, call).logits, 1e-4, 1e-5));
    for (const auto& other : seen) EXPECT_FALSE(at::allclose(got, other, 1e-4, 1e-5));
    seen.push_back(got);
  };
  check();
  const auto before = counters();
  peft->hotswap_adapter(second, "router");
  check();
  peft->scale_adapter("router", 0.5);
  check();
  check({.adapter_names = {"router", "plain", "__base__"}});
  peft->set_adapter("plain");
  check();
  peft->delete_adapter("router");
  peft->load_adapter(first, "again");
  peft->set_adapter("again");
  EXPECT_TRUE(at::allclose(fast(inputs).logits, seen[0], 1e-4, 1e-5));
  EXPECT_EQ(counters().graphs, before.graphs);
  EXPECT_EQ(counters().recompiles, before.recompiles);
}

TEST(Arrow, RouterHasNothingToTrain) {
  const TempDir dir;
  const auto one = saved_expert(dir, 1), two = saved_expert(dir, 2);
  const auto peft =
      get_peft_model(tiny_decoder("llama"),
                     LoraConfig{.arrow_config = ArrowConfig{.top_k = 1, .task_adapter_names = {one, two}}});
  EXPECT_TRUE(peft->trainable_tensors("default").empty());
  EXPECT_EQ(peft->peft_config("default").integer("r"), 2);
  EXPECT_THROW(peft->merge_adapter(), UsageError);
}

}  // namespace
}  // namespace graft
