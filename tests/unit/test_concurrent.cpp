// What several threads may do at once: one model called, one file read, adapters changed between calls.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

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

INSTANTIATE_TEST_SUITE_P(Backends, ConcurrentAdapters, testing::Values(Backend::eager, Backend::graft),
                         [](const auto& info) {
                           return std::string(info.param == Backend::eager ? "eager" : "graft");
                         });

}  // namespace
}  // namespace graft
