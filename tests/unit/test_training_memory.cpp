// What training takes: compiled, a model of any kind holds less than it does eagerly.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "graft/compile.h"
#include "graft/compile_step.h"
#include "runtime/arena_pool.h"
#include "runtime/memory_meter.h"
#include "targets/targets.h"
#include "tiny_models.h"

namespace graft {
namespace {

using testing_tools::tiny_loss;

/// So many rows that what the passes hold is more than the weights.
ModelInputs many_rows(const Architecture& architecture) {
  auto inputs = testing_tools::tiny_batch(architecture);
  for (auto* tensor : {&inputs.input_ids, &inputs.pixel_values, &inputs.decoder_input_ids, &inputs.labels})
    if (tensor->defined()) *tensor = tensor->repeat_interleave(64, 0);
  return inputs;
}

/// Of forward and backward, once the program is trusted.
int64_t peak(const Architecture& architecture, const CompileOptions& options) {
  const auto model = testing_tools::tiny_model(architecture);
  const auto inputs = many_rows(architecture);
  const auto fast =
      compile([model](const ModelInputs& in) { return tiny_loss(model->forward(in)); }, options, {model});
  const auto call = [&] {
    fast(inputs).backward();
    model->zero_grad();
  };
  MemoryMeter meter;  // from the start: the memory of temporaries stays
  call(), call(), call();
  meter.start_again();
  call();
  return meter.peak();
}

TEST(TrainingMemory, CompiledHoldsLessThanEager) {
  std::set<std::string> seen;
  for (const auto& architecture : architectures()) {
    if (!seen.insert(std::string(architecture.model_type)).second) continue;  // one of each family
    SCOPED_TRACE(std::string(architecture.name));
    EXPECT_LT(peak(architecture, {.fullgraph = true, .cache = false}),
              peak(architecture, {.backend = Backend::eager}));
  }
}

/// Of a whole step, optimizer and all.
int64_t step_peak(const std::shared_ptr<PreTrainedModel>& model, const ModelInputs& inputs,
                  const CompileOptions& options) {
  auto step = compile_step(model, [model](const ModelInputs& in) { return tiny_loss(model->forward(in)); },
                           AdamW{}, {.max_grad_norm = 1, .compile = options});
  MemoryMeter meter;
  for (int call = 0; call < 3; ++call) step(inputs);
  meter.start_again();
  step(inputs);
  return meter.peak();
}
int64_t step_peak(const Architecture& architecture, const CompileOptions& options) {
  return step_peak(testing_tools::tiny_model(architecture), many_rows(architecture), options);
}

TEST(TrainingMemory, AStepHoldsLessThanEager) {
  std::set<std::string> seen;
  for (const auto& architecture : architectures()) {
    if (!seen.insert(std::string(architecture.model_type)).second) continue;
    if (architecture.model_type == "resnet") continue;  // below
    SCOPED_TRACE(std::string(architecture.name));
    EXPECT_LT(step_peak(architecture, {.fullgraph = true, .cache = false}),
              step_peak(architecture, {.backend = Backend::eager}));
  }
}

/// With as many channels as such models have: of four, ATen's first convolution takes more for itself than
/// all layers leave behind.
std::shared_ptr<PreTrainedModel> resnet() {
  at::manual_seed(3);
  return AutoModelForAny::from_config(Config::from_json(
      R"({"architectures": ["ResNetForImageClassification"], "model_type": "resnet", "embedding_size": 32,
          "hidden_sizes": [32, 64, 128], "depths": [2, 2, 2], "layer_type": "basic", "num_labels": 10})"));
}

TEST(TrainingMemory, AStepOfConvolutionsHoldsLessThanEager) {
  at::globalContext().setUserEnabledMkldnn(true);  // another test may have made torch give it up
  // Of few rows the optimizer holds most, of many the passes; in between they are alike, and what oneDNN
  // takes for itself where it is used (on x86) weighs most.
  for (const int64_t rows : {2, 4, 16}) {
    SCOPED_TRACE(rows);
    ModelInputs inputs;
    inputs.pixel_values = at::randn({rows, 3, 64, 64});
    inputs.labels = at::arange(rows, at::kLong) % 10;
    const auto eager = step_peak(resnet(), inputs, {.backend = Backend::eager});
    EXPECT_LT(step_peak(resnet(), inputs, {.fullgraph = true, .cache = false}), eager);
    // Block by block, what a block gives is held until another takes it; the optimizer writes in place all
    // the same.
    if (rows == 4)
      EXPECT_LT(step_peak(resnet(), inputs, {.fullgraph = true, .regional = true, .cache = false}),
                eager * 1.1);
  }
}

// What attention gives is needed again in the backward pass, and torch makes it: it waits in planned memory.
TEST(TrainingMemory, WhatACallMakesWaitsInPlannedMemory) {
  constexpr int64_t kLayers = 6, kBytes = 8 * 64 * 32 * 4;
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < kLayers; ++i) weights.push_back((at::randn({32, 32}) / 6).requires_grad_());
  struct Net : torch::nn::Module {
    explicit Net(const std::vector<at::Tensor>& all) {
      for (size_t i = 0; i < all.size(); ++i) register_parameter("w" + std::to_string(i), all[i]);
    }
  };
  const auto net = std::make_shared<Net>(weights);
  auto step = compile_step(
      net,
      [net](at::Tensor x) {
        for (const auto& w : net->parameters()) {
          const auto heads = at::matmul(x, w).view({8, 64, 4, 8}).transpose(1, 2);
          x = x + at::scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape({8, 64, 32});
        }
        return x.square().mean();
      },
      AdamW{}, {.compile = {.cache = false}});
  const auto x = at::randn({8, 64, 32});
  step(x), step(x);
  MemoryMeter meter;
  step(x);
  EXPECT_LT(meter.peak(), (kLayers - 1) * kBytes);  // one layer's, and what its backward makes
}

TEST(TrainingMemory, ProgramsThatRunInTurnShareTheirTemporaries) {
  const auto x = at::rand({64, 1024});
  const auto bytes = static_cast<int64_t>(x.nbytes());
  const auto through = [](int64_t times) {
    return compile(
        [times](at::Tensor t) {
          for (int64_t i = 0; i < times; ++i) t = at::mm(t, t.t()).mm(t);
          return t.sum();
        },
        {.cache = false});
  };
  const auto one = through(1), two = through(2), three = through(3);
  MemoryMeter meter;
  for (const auto* each : {&one, &two, &three})
    for (int call = 0; call < 3; ++call) (*each)(x);
  meter.start_again();
  for (const auto* each : {&one, &two, &three}) (*each)(x);
  EXPECT_LT(meter.peak(), 4 * bytes);  // the longest has two of this size and a small one; ATen may take one
}

TEST(ArenaPool, LendsWhatCameBack) {
  runtime::ArenaPool pool(target_for({}).device({}));
  void* first = nullptr;
  {
    const runtime::ArenaPool::Loan a(pool, 1000);
    first = a.start();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
    const runtime::ArenaPool::Loan b(pool, 1000);
    EXPECT_NE(b.start(), first) << "both at a time";
  }
  const runtime::ArenaPool::Loan again(pool, 500);
  EXPECT_EQ(again.start(), first) << "the last that came back";
}

TEST(ArenaPool, OneThatIsTooSmallMakesRoom) {
  MemoryMeter meter;
  runtime::ArenaPool pool(target_for({}).device({}));
  for (const int64_t bytes : {1000, 100000, 1000, 50000}) {
    const runtime::ArenaPool::Loan loan(pool, bytes);
    std::memset(loan.start(), 1, static_cast<size_t>(bytes));
  }
  EXPECT_LT(meter.peak(), 101000);
}

}  // namespace
}  // namespace graft
