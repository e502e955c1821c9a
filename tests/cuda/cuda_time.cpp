// How long a Llama's forward pass takes on a GPU, eager and compiled, in one run:
//   cuda_time CONFIG_FOLDER DTYPE BATCH LENGTH [CALLS [CONTENDER]]
// The weights are random. Median of single calls, each until the GPU is done, and the time of a call where
// the host runs ahead.
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>

#include "graft/compile.h"
#include "graft/config.h"
#include "graft/model.h"

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string only;  // this contender

void measure(const char* name, int calls, const std::function<at::Tensor()>& call) {
  if (!only.empty() && only != name) return;
  torch::cuda::synchronize();
  const auto first = Clock::now();
  auto out = call();
  torch::cuda::synchronize();
  const double cold = since(first);
  for (int i = 0; i < 5; ++i) out = call();
  torch::cuda::synchronize();
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

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: cuda_time CONFIG_FOLDER DTYPE BATCH LENGTH [CALLS [CONTENDER]]\n";
    return 2;
  }
  if (!torch::cuda::is_available()) return 3;
  const std::string type = argv[2];
  const auto dtype = type == "float16" ? at::kHalf : type == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const int calls = argc > 5 ? std::stoi(argv[5]) : 50;
  if (argc > 6) only = argv[6];
  const auto config = graft::Config::from_pretrained(argv[1]);
  const auto model = graft::AutoModelForAny::from_config(config, {.dtype = dtype, .device = at::kCUDA});
  model->eval();
  graft::ModelInputs inputs;
  inputs.input_ids =
      at::randint(0, 1000, {std::stol(argv[3]), std::stol(argv[4])}, at::device(at::kCUDA).dtype(at::kLong));
  const at::NoGradGuard no_grad;
  measure("eager", calls, [&] { return model->forward(inputs).logits; });
  const auto fast = graft::compile(model, {.fullgraph = true});
  measure("compiled", calls, [&] { return fast(inputs).logits; });
  const auto recorded = graft::compile(model, {.mode = graft::Mode::reduce_overhead, .fullgraph = true});
  measure("reduce-overhead", calls, [&] { return recorded(inputs).logits; });
}
