// How long a model's forward pass (without and with adapters), a training step of its adapters or a token of
// a greedy continuation takes on a GPU, eager and compiled, in one run:
//   cuda_time forward|lora|train|decode CONFIG_FOLDER DTYPE BATCH LENGTH [CALLS [CONTENDER]]
// The weights are random. Median of single calls, each until the GPU is done, and the time of a call where
// the host runs ahead.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_profiler_api.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>

#include "graft/adapter_config.h"
#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/config.h"
#include "graft/generate.h"
#include "graft/model.h"
#include "graft/peft.h"

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string only;  // the contenders whose names contain this

/// What to look at: for ncu --profile-from-start off, and with GRAFT_TIME_TRACE=F as a trace in file F, when
/// each kernel ran.
void watched(const std::function<void()>& body) {
  using namespace torch::autograd::profiler;
  using namespace torch::profiler::impl;
  torch::cuda::synchronize();
  const char* path = std::getenv("GRAFT_TIME_TRACE");
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> what = {ActivityType::CUDA};
  if (path) {
    prepareProfiler(config, what);
    enableProfiler(config, what);
  }
  cudaProfilerStart();
  body();
  torch::cuda::synchronize();
  cudaProfilerStop();
  if (path) disableProfiler()->save(path);
}

void measure(
    const char* name, int calls, const std::function<at::Tensor()>& call,
    const std::function<void()>& when_warm = [] {}) {
  if (std::string_view(name).find(only) == std::string_view::npos) return;
  torch::cuda::synchronize();
  const auto first = Clock::now();
  auto out = call();
  torch::cuda::synchronize();
  const double cold = since(first);
  for (int i = 0; i < 5; ++i) out = call();
  torch::cuda::synchronize();
  when_warm();
  watched([&] { out = call(); });
  std::vector<double> single;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    out = call();
    torch::cuda::synchronize();
    single.push_back(since(start));
  }
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) out = call();
  const double host = since(start) / calls;
  torch::cuda::synchronize();
  const double ahead = since(start) / calls;
  std::ranges::sort(single);
  std::cout << name << ": first " << cold << " ms, single " << single[single.size() / 2] << " ms, in a row "
            << ahead << " ms (host " << host << " ms), checksum "
            << out.to(at::kDouble).abs().mean().item<double>() << std::endl;
}

struct Way {
  const char* name;
  graft::CompileOptions options;
};

std::vector<Way> ways() {
  return {{"eager", {.backend = graft::Backend::eager}},
          {"compiled", {.fullgraph = true}},
          {"reduce-overhead", {.mode = graft::Mode::reduce_overhead, .fullgraph = true}},
          {"max-autotune", {.mode = graft::Mode::max_autotune, .fullgraph = true}}};
}

void forward(const std::shared_ptr<graft::PreTrainedModel>& model, const graft::ModelInputs& inputs,
             int calls) {
  const at::NoGradGuard no_grad;
  model->eval();
  for (const auto& way : ways()) {
    const auto fast = graft::compile(model, way.options);
    measure(way.name, calls, [&] { return fast(inputs).logits; });
  }
}

/// LoRA of rank 16 on all linear layers, AdamW.
void train(const std::shared_ptr<graft::PreTrainedModel>& model, graft::ModelInputs inputs, int calls) {
  inputs.labels = inputs.input_ids;
  const auto peft = graft::get_peft_model(
      model, graft::LoraConfig{.r = 16, .target_modules = "all-linear", .lora_alpha = 32});
  peft->train();
  for (const auto& way : ways()) {
    auto step =
        graft::compile_step(peft, [peft](const graft::ModelInputs& in) { return peft->forward(in).loss; },
                            graft::AdamW{.lr = 1e-4}, {.compile = way.options});
    measure(
        way.name, calls, [&] { return step(inputs); },
        [] {
          c10::cuda::CUDACachingAllocator::emptyCache();
          c10::cuda::CUDACachingAllocator::resetPeakStats(0);
        });
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    std::cout << "  peak memory " << static_cast<double>(stats.allocated_bytes[0].peak) / 1e9
              << " GB allocated, " << static_cast<double>(stats.reserved_bytes[0].peak) / 1e9
              << " GB reserved" << std::endl;
  }
}

/// Three LoRA adapters of rank 16 on all linear layers: the base alone, one adapter, adapters disabled, and
/// each row of the batch with its own, by one compiled program.
void lora(const std::shared_ptr<graft::PreTrainedModel>& model, const graft::ModelInputs& inputs, int calls) {
  const at::NoGradGuard no_grad;
  model->eval();
  for (const auto& way : ways()) {
    const auto fast = graft::compile(model, way.options);
    measure((way.name + std::string(" base")).c_str(), calls, [&] { return fast(inputs).logits; });
  }
  const graft::LoraConfig config{
      .r = 16, .target_modules = "all-linear", .lora_alpha = 32, .init_lora_weights = "gaussian"};
  const auto peft = graft::get_peft_model(model, config);
  peft->add_adapter("second", config);
  peft->add_adapter("third", config);
  peft->eval();
  const std::vector<std::string> names = {"default", "second", "third", "__base__"};
  graft::AdapterCall mixed;
  for (int64_t row = 0; row < inputs.input_ids.size(0); ++row)
    mixed.adapter_names.push_back(names[static_cast<size_t>(row) % names.size()]);
  for (const auto& way : ways()) {
    const std::string name = way.name;
    const auto fast = graft::compile(peft, way.options);
    measure((name + " one adapter").c_str(), calls, [&] { return fast(inputs).logits; });
    measure((name + " mixed").c_str(), calls, [&] { return fast(inputs, mixed).logits; });
    const auto start = Clock::now();
    peft->set_adapter("second");
    fast(inputs);
    torch::cuda::synchronize();
    std::cout << "  after a switch " << since(start) << " ms" << std::endl;
    const auto disabled = peft->disable_adapter();
    measure((name + " disabled").c_str(), calls, [&] { return fast(inputs).logits; });
    std::cout << "  recompiles " << graft::counters().recompiles << std::endl;
  }
}

/// Tokens after a prompt: what `calls` more of them take, so that the prompt's own time is not in it.
void decode(const std::shared_ptr<graft::PreTrainedModel>& model, const graft::ModelInputs& inputs,
            int calls) {
  const at::NoGradGuard no_grad;
  model->eval();
  for (const auto& way : ways()) {
    if (std::string_view(way.name).find(only) == std::string_view::npos) continue;
    graft::Decoder decoder(model, way.options);
    const auto time_of = [&](int64_t tokens) {
      torch::cuda::synchronize();
      const auto start = Clock::now();
      const auto made = decoder.generate(inputs, {.max_new_tokens = tokens});
      torch::cuda::synchronize();
      return std::pair(since(start), made.to(at::kDouble).mean().item<double>());
    };
    const auto first = time_of(calls).first;
    time_of(calls);
    std::vector<double> each;
    double sum = 0;
    for (int i = 0; i < 5; ++i) {
      const auto [few, one] = time_of(8);
      const auto [many, all] = time_of(8 + calls);
      each.push_back((many - few) / calls);
      sum = all;
    }
    watched([&] { time_of(4); });
    std::ranges::sort(each);
    std::cout << way.name << ": first continuation " << first << " ms, a token " << each[2] << " ms, "
              << 1e3 * static_cast<double>(inputs.input_ids.size(0)) / each[2] << " tokens/s, checksum "
              << sum << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "usage: cuda_time forward|lora|train|decode CONFIG_FOLDER DTYPE BATCH LENGTH [CALLS "
                 "[CONTENDER]]\n";
    return 2;
  }
  if (!torch::cuda::is_available()) return 3;
  const std::string what = argv[1], type = argv[3];
  const auto dtype = type == "float16" ? at::kHalf : type == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const int calls = argc > 6 ? std::stoi(argv[6]) : 50;
  if (argc > 7) only = argv[7];
  const auto config = graft::Config::from_pretrained(argv[2]);
  const auto model = graft::AutoModelForAny::from_config(config, {.dtype = dtype, .device = at::kCUDA});
  graft::ModelInputs inputs;
  inputs.input_ids =
      at::randint(0, 1000, {std::stol(argv[4]), std::stol(argv[5])}, at::device(at::kCUDA).dtype(at::kLong));
  if (what == "train")
    train(model, inputs, calls);
  else if (what == "lora")
    lora(model, inputs, calls);
  else if (what == "decode")
    decode(model, inputs, calls);
  else
    forward(model, inputs, calls);
}
