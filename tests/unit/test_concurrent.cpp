// What several threads may do at once: one model called, one file read, adapters changed between calls.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "graft/model.h"
#include "graft/peft.h"
#include "graft/safetensors.h"
#include "graft/tokenizer.h"
#include "unit/temp_dir.h"

namespace graft {
namespace {

constexpr int kThreads = 4, kRounds = 8;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

auto tiny_llama() {
  return AutoModelForAny::from_config(Config::from_json(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 31, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1})"));
}

TEST(Concurrent, OneModelManyCallers) {
  torch::manual_seed(1);
  const auto model = tiny_llama();
  const auto ids = [](int i) { return torch::arange(i, i + 6).view({2, 3}); };
  std::vector<at::Tensor> want(kThreads), got(kThreads);
  torch::NoGradGuard no_grad;
  for (int i = 0; i < kThreads; ++i) want[i] = model->forward({.input_ids = ids(i)}).logits;
  in_threads([&](int i) {
    torch::NoGradGuard thread_no_grad;
    for (int round = 0; round < kRounds; ++round) got[i] = model->forward({.input_ids = ids(i)}).logits;
  });
  for (int i = 0; i < kThreads; ++i) EXPECT_TRUE(torch::allclose(got[i], want[i]));
}

TEST(Concurrent, OneFileManyReaders) {
  const TempDir dir;
  const auto path = dir.path() / "many.safetensors";
  NamedTensors tensors;
  for (int i = 0; i < 16; ++i) tensors.emplace_back("t" + std::to_string(i), torch::full({3, 5}, i));
  save_safetensors(path, tensors);
  const auto file = SafetensorsFile::open(path);
  std::vector<int> wrong(kThreads);
  in_threads([&](int i) {
    for (const auto& [name, tensor] : tensors) wrong[i] += !torch::equal(file->tensor(name), tensor);
  });
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
}

TEST(Concurrent, WritersOfOneNameLeaveOneWholeFile) {
  const TempDir dir;
  const auto path = dir.path() / "contended.safetensors";
  in_threads([&](int i) {
    for (int round = 0; round < kRounds; ++round) save_safetensors(path, {{"t", torch::full({1000}, i)}});
  });
  const auto value = SafetensorsFile::open(path)->tensor("t");
  EXPECT_TRUE(torch::equal(value, value[0].expand({1000})));
}

class ConcurrentAdapters : public testing::TestWithParam<Backend> {};

TEST_P(ConcurrentAdapters, ComeAndGoBetweenCalls) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  const auto base = tiny_llama();
  const LoraConfig config{.r = 2, .target_modules = {"q_proj", "down_proj"}};
  const auto peft = get_peft_model(base, config, "kept");
  for (const auto& [name, tensor] : peft->state_dict("kept")) tensor.normal_();
  const TempDir dir;
  peft->save_adapter(dir.path() / "guest", "kept");
  peft->reserve(2, config);
  const auto model = compile(peft, {.backend = GetParam(), .fullgraph = true});
  const ModelInputs inputs{.input_ids = torch::arange(8).view({2, 4})};
  const AdapterCall call{.adapter_names = {"kept", "__base__"}};
  const auto want = model(inputs, call).logits;
  model(inputs, call);  // checked twice
  const auto recompiles = counters().recompiles;

  std::vector<std::string> wrong(kThreads);
  in_threads([&](int i) {
    const torch::NoGradGuard thread_no_grad;
    const auto guest = "guest" + std::to_string(i);
    for (int round = 0; round < kRounds; ++round) {
      if (i < 2) {
        if (!torch::allclose(model(inputs, call).logits, want)) wrong[i] = "another result";
        continue;
      }
      peft->load_adapter(dir.path() / "guest", guest);
      peft->scale_adapter(guest, 3.0);
      peft->set_adapter(guest);
      peft->hotswap_adapter(dir.path() / "guest", guest);
      const auto names = peft->adapter_names();
      if (std::find(names.begin(), names.end(), guest) == names.end()) wrong[i] = "it is not there";
      peft->set_adapter("kept");
      peft->delete_adapter(guest);
    }
  });
  EXPECT_EQ(wrong, std::vector<std::string>(kThreads));
  EXPECT_EQ(counters().recompiles, recompiles);
}

/// Everything that a PeftModel tells is read under its lock and given as values: each is one of the states
/// that there were. (TSan sees the rest.)
TEST(Concurrent, AdaptersAreReadWhileTheyChange) {
  torch::manual_seed(3);
  const auto peft = get_peft_model(tiny_llama(), LoraConfig{.r = 2, .target_modules = {"q_proj"}}, "a");
  peft->add_adapter("b", LoraConfig{.r = 3, .target_modules = {"q_proj", "down_proj"}});
  peft->add_adapter("tokens", PromptTuningConfig{.num_virtual_tokens = 2, .task_type = "CAUSAL_LM"});
  using Names = std::vector<std::string>;
  const auto of = [&](const std::string& name) {
    peft->set_adapter(name);
    return peft->get_nb_trainable_parameters();
  };
  const auto all = of("a").all, a = of("a").trainable, b = of("b").trainable, tokens = of("tokens").trainable;
  ASSERT_TRUE(a > 0 && b > a && tokens > 0);

  const auto change = [&](int round) {
    peft->set_adapter("a");
    peft->merge_adapter();
    peft->unmerge_adapter();
    {
      const auto disabled = peft->disable_adapter();
    }
    peft->set_adapter("b");
    peft->merge_adapter();
    peft->set_adapter("tokens");  // which unmerges
    const auto guest = "guest" + std::to_string(round);
    peft->add_adapter(guest, LoraConfig{.r = 1, .target_modules = {"k_proj"}});
    peft->scale_adapter(guest, 2);
    peft->delete_adapter(guest);
  };
  const auto read = [&]() -> std::string {
    const auto active = peft->active_adapters(), merged = peft->merged_adapters();
    if (active != Names{"a"} && active != Names{"b"} && active != Names{"tokens"}) return "active";
    if (!merged.empty() && merged != Names{"a"} && merged != Names{"b"}) return "merged";
    const auto names = peft->adapter_names();
    if (names.size() < 3 || names.size() > 4 ||
        !std::equal(names.begin(), names.begin() + 3, Names{"a", "b", "tokens"}.begin()))
      return "names";
    const auto count = peft->get_nb_trainable_parameters();
    if (count.all < all ||
        (count.trainable != 0 && count.trainable != a && count.trainable != b && count.trainable != tokens))
      return "count";
    if (const auto length = peft->num_virtual_tokens(); length != 0 && length != 2) return "virtual tokens";
    if (peft->peft_config("b").integer("r") != 3) return "config";
    if (peft->trainable_tensors("a").size() != 4 || peft->state_dict("b").size() != 8) return "tensors";
    if (!peft->allocation_state("a").empty()) return "allocation";
    return "";
  };
  std::atomic<bool> done = false;
  std::vector<std::string> wrong(kThreads);
  in_threads([&](int i) {
    if (i == 0) {
      for (int round = 0; round < kRounds; ++round) change(round);
      done = true;
    } else {
      while (!done && wrong[i].empty()) wrong[i] = read();
    }
  });
  EXPECT_EQ(wrong, Names(kThreads));
}

INSTANTIATE_TEST_SUITE_P(Backends, ConcurrentAdapters, testing::Values(Backend::eager, Backend::graft),
                         [](const auto& info) {
                           return std::string(info.param == Backend::eager ? "eager" : "graft");
                         });

}  // namespace
}  // namespace graft
