// What a caller may do to a Trainer, an Accelerator or a compiled step, and what is refused: adapters that
// change between steps, numbers that no optimizer takes, nothing where something should be.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "graft/accelerator.h"
#include "graft/compile_step.h"
#include "graft/error.h"
#include "unit/temp_dir.h"
#include "unit/tiny_decoders.h"
#include "unit/tiny_models.h"

namespace graft {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SomeBatches : public TrainingData {
 public:
  explicit SomeBatches(int64_t count = 3) : count_(count) {}
  int64_t batches() const override { return count_; }
  ModelInputs batch(int64_t, int64_t index) const override {
    ModelInputs inputs;
    inputs.input_ids = at::arange(index, index + 12, at::kLong).reshape({2, 6}) + 3;
    return inputs;
  }

 private:
  int64_t count_;
};

std::shared_ptr<const TrainingData> some_batches() { return std::make_shared<SomeBatches>(); }

/// "a", "b", ... on one model, each with numbers of its own, added in this order; the first is active.
std::shared_ptr<PeftModel> with_adapters(const std::string& names) {
  auto peft = std::make_shared<PeftModel>(testing_tools::tiny_decoder("llama"));
  const at::NoGradGuard no_grad;
  for (const char name : names) {
    peft->add_adapter({name}, LoraConfig{.r = 2, .target_modules = std::vector<std::string>{"q_proj"}});
    at::manual_seed(static_cast<uint64_t>(name));
    for (const auto& [key, tensor] : peft->tensors_by_place({name}))
      if (tensor.dim() == 2) tensor.normal_();
  }
  return peft;
}

at::Tensor logits(PeftModel& peft, const std::string& name) {
  const at::NoGradGuard no_grad;
  return peft.forward(some_batches()->batch(0, 0), {.adapter_names = {name, name}}).logits;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(body, words) \
  EXPECT_NE(message_of([&] { body; }).find(words), std::string::npos) << message_of([&] { body; })

class ChangedAdapters : public testing::TestWithParam<Backend> {
 public:
  TrainingArguments arguments() const {
    return {.learning_rate = 0.1, .max_steps = 3, .compile = {.backend = GetParam()}};
  }
  /// Whether a run changes the adapter.
  static bool trains(PeftModel& peft, Trainer& trainer, const std::string& name) {
    const auto before = logits(peft, name);
    trainer.train();
    return !at::equal(before, logits(peft, name));
  }
};

TEST_P(ChangedAdapters, WhatIsActiveWhenTrainBeginsIsTrained) {
  const std::vector<std::function<void(PeftModel&)>> changes{
      [](PeftModel& p) { p.delete_adapter("a"); },
      [](PeftModel& p) { p.set_adapter("b"); },
      [](PeftModel& p) {
        p.delete_adapter("b");
        p.add_adapter("b", LoraConfig{.r = 2, .target_modules = std::vector<std::string>{"q_proj"}});
        p.set_adapter("b");
      },
  };
  for (const auto& change : changes) {
    const auto peft = with_adapters("ab");
    Trainer trainer(peft, arguments(), some_batches());
    change(*peft);
    EXPECT_TRUE(trains(*peft, trainer, "b"));
  }
  // Another of the same name: once trained when compiled, and in silence not when eager.
  const auto peft = with_adapters("a");
  Trainer trainer(peft, arguments(), some_batches());
  peft->delete_adapter("a");
  peft->add_adapter("a", LoraConfig{.r = 2, .target_modules = std::vector<std::string>{"q_proj"}});
  EXPECT_TRUE(trains(*peft, trainer, "a"));
  peft->base_model()->to(at::kDouble);
  EXPECT_TRUE(trains(*peft, trainer, "a"));
}

TEST_P(ChangedAdapters, NothingToTrainIsSaid) {
  const auto peft = with_adapters("a");
  Trainer trainer(peft, arguments(), some_batches());
  peft->merge_adapter();
  EXPECT_SAYS(trainer.train(), "[train] \"a\" is merged into the weights: call unmerge_adapter()");
  peft->unmerge_adapter();
  peft->disable_adapters();
  EXPECT_SAYS(trainer.train(), "[train] adapters are disabled: call enable_adapters()");
  peft->enable_adapters();
  EXPECT_TRUE(trains(*peft, trainer, "a"));
}

TEST_P(ChangedAdapters, OthersDuringARunAreAnError) {
  const std::vector<std::function<void(PeftModel&)>> changes{
      [](PeftModel& p) { p.delete_adapter("a"); },
      [](PeftModel& p) { p.set_adapter("b"); },
      [](PeftModel& p) { p.merge_adapter(); },
      [](PeftModel& p) { p.disable_adapters(); },
      [](PeftModel& p) { p.set_adapter(std::vector<std::string>{"a", "b"}); },
  };
  for (const int64_t when : {1, 3})
    for (const auto& change : changes) {
      const auto peft = with_adapters("ab");
      Trainer trainer(peft, arguments(), some_batches());
      int64_t steps = 0;
      trainer.on_step([&](const TrainingStep& step) {
        steps = step.step;
        if (step.step == when) change(*peft);
      });
      const auto said = message_of([&] { trainer.train(); });
      EXPECT_TRUE(said.starts_with("[train] during the run ")) << said;
      EXPECT_EQ(steps, when);
    }
}

TEST_P(ChangedAdapters, FrozenDuringARunIsLeftAlone) {
  const auto model = testing_tools::tiny_decoder("llama");
  auto tensors = model->unique_parameters();
  for (auto& [name, tensor] : tensors) tensor.set_requires_grad(true);
  auto& [name, frozen] = tensors[3];
  Trainer trainer(model, arguments(), some_batches());
  at::Tensor then;
  trainer.on_step([&](const TrainingStep& step) {
    if (step.step > 1) return;
    frozen.set_requires_grad(false);
    then = frozen.detach().clone();
  });
  trainer.train();
  EXPECT_TRUE(at::equal(frozen, then));

  trainer.on_step([&](const TrainingStep& step) {
    if (step.step == 1) frozen.set_requires_grad(true);  // not in the optimizer of this run
  });
  EXPECT_SAYS(trainer.train(), "came into training, which the optimizer has not");
}

INSTANTIATE_TEST_SUITE_P(All, ChangedAdapters, testing::Values(Backend::eager, Backend::graft),
                         [](const auto& info) { return info.param == Backend::eager ? "eager" : "graft"; });

TEST(TrainerUse, NumbersThatNoRunCanHave) {
  const auto refused = [](TrainingArguments a, const char* words) {
    EXPECT_SAYS(Trainer(with_adapters("a"), a, some_batches()), words);
  };
  refused({.adam_beta1 = 1}, "adam_beta1 must be at least 0 and below 1, got 1");
  refused({.adam_beta2 = 2}, "adam_beta2");
  refused({.adam_epsilon = -1}, "adam_epsilon must be a number from 0, got -1");
  refused({.adam_epsilon = kNaN}, "got NaN");
  refused({.weight_decay = kInfinity}, "weight_decay");
  refused({.learning_rate = kNaN}, "learning rate");
  refused({.max_grad_norm = kNaN}, "max_grad_norm");
  refused({.warmup_steps = 1e300}, "warmup_steps");
  refused({.loraplus_lr_ratio = kInfinity}, "loraplus_lr_ratio");
  refused({.num_train_epochs = kInfinity}, "num_train_epochs must be a number above 0");
  refused({.num_train_epochs = 1e300}, "num_train_epochs 1e+300 is more steps than can be counted");
  // Once more than a whole number holds, and so no step at all.
  const TrainingArguments whole{.num_train_epochs = 2, .gradient_accumulation_steps = INT64_MAX};
  Trainer trainer(with_adapters("a"), whole, some_batches());
  EXPECT_EQ(trainer.max_steps(), 2);
  EXPECT_EQ(trainer.train().global_step, 2);
}

TEST(TrainerUse, NothingWhereSomethingShouldBe) {
  const auto peft = with_adapters("a");
  EXPECT_SAYS(Trainer(std::shared_ptr<PeftModel>(), {}, some_batches()),
              "[train] the model is a null pointer");
  EXPECT_SAYS(Trainer(std::shared_ptr<PreTrainedModel>(), {}, some_batches()), "the model is a null pointer");
  EXPECT_SAYS(Trainer(peft, {}, nullptr), "[train] the data is a null pointer");
  EXPECT_SAYS(Trainer(peft, {}, std::make_shared<SomeBatches>(0)), "[train] the data have no batch");
  Trainer trainer(peft, {.max_steps = 1}, some_batches());
  EXPECT_THROW(trainer.evaluate(SomeBatches(0)), UsageError);
  Trainer moved(std::move(trainer));
  // NOLINTBEGIN(bugprone-use-after-move)
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { trainer.train(); }, [&] { trainer.evaluate(SomeBatches()); }, [&] { trainer.max_steps(); },
           [&] { trainer.evaluate_on(nullptr); }, [&] { trainer.save_model("nowhere"); },
           [&] { trainer.add_callback(nullptr); }, [&] { trainer.on_step({}); },
           [&] { trainer.gather_weights(); }, [&] { trainer.base_memory(); }})
    EXPECT_SAYS(use(), "[train] this Trainer was moved from");
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_EQ(moved.train().global_step, 1);
}

TEST(TrainerUse, ARunOfOtherAdaptersIsNotResumed) {
  const TempDir temp;
  const auto arguments = [&](const char* folder) {
    return TrainingArguments{.output_dir = temp / folder, .max_steps = 2, .save_steps = 1};
  };
  const auto resume = [&](const char* folder, const std::vector<std::string>& active) {
    const auto peft = with_adapters("ab");
    peft->set_adapter(active);
    return message_of([&] { Trainer(peft, arguments(folder), some_batches()).train(true); });
  };
  Trainer(with_adapters("ab"), arguments("one"), some_batches()).train();
  const auto both = with_adapters("ab");
  both->set_adapter(std::vector<std::string>{"a", "b"});
  Trainer(both, arguments("two"), some_batches()).train();
  EXPECT_NE(
      resume("one", {"a", "b"}).find("is of a run that trained one adapter, and now \"a\", \"b\" are active"),
      std::string::npos)
      << resume("one", {"a", "b"});
  EXPECT_NE(resume("two", {"a"})
                .find("is of a run that trained the adapters \"a\", \"b\", and now \"a\" is active"),
            std::string::npos)
      << resume("two", {"a"});
  EXPECT_EQ(resume("two", {"a", "b"}), "no error");
  EXPECT_SAYS(Trainer(with_adapters("a"), arguments("one"), some_batches()).train(), "train(true)");
}

/// A batch normalisation of the adapter's own moves its statistics in training: once they were the base's
/// again after a resume.
TEST(TrainerUse, StatisticsOfAnAdapterAreResumed) {
  const TempDir temp;
  const auto& resnet = find_architecture("ResNetForImageClassification");
  class Images : public TrainingData {
   public:
    explicit Images(const Architecture& of) : of_(of) {}
    int64_t batches() const override { return 4; }
    ModelInputs batch(int64_t, int64_t index) const override {
      return testing_tools::tiny_batch(of_, static_cast<uint64_t>(index));
    }

   private:
    const Architecture& of_;
  };
  const auto run = [&](const char* folder, int64_t steps, bool resume) {
    const auto peft = std::make_shared<PeftModel>(testing_tools::tiny_model(resnet));
    at::manual_seed(1);
    peft->add_adapter("a",
                      LoraConfig{.r = 2,
                                 .target_modules = std::vector<std::string>{"convolution"},
                                 .modules_to_save = std::vector<std::string>{"normalization", "classifier"}});
    Trainer trainer(peft,
                    {.output_dir = temp / folder,
                     .learning_rate = 0.01,
                     .lr_scheduler_type = "constant",
                     .max_steps = steps,
                     .save_steps = 2},
                    std::make_shared<Images>(resnet));
    trainer.train(resume);
    return peft->state_dict("a");
  };
  run("part", 2, false);
  const auto resumed = run("part", 4, true), whole = run("whole", 4, false);
  bool any = false;
  for (size_t i = 0; i < whole.size(); ++i) {
    any |= whole[i].first.ends_with("running_mean");
    EXPECT_TRUE(at::equal(resumed[i].second, whole[i].second)) << whole[i].first;
  }
  EXPECT_TRUE(any);
}

TEST(AcceleratorUse, AdaptersAreSavedByTheirNames) {
  const TempDir temp;
  struct Around : torch::nn::Module {  // and where the model is a part of another
    std::shared_ptr<PeftModel> peft;
    explicit Around(std::shared_ptr<PeftModel> of) : peft(register_module("peft", std::move(of))) {}
    at::Tensor forward(const at::Tensor& ids) { return peft->forward({.input_ids = ids}).logits; }
  };
  const auto saved = with_adapters("ab");
  const std::map<std::string, at::Tensor> expected{{"a", logits(*saved, "a")}, {"b", logits(*saved, "b")}};
  for (const bool around : {false, true}) {
    const auto folder = temp / (around ? "around" : "plain");
    Accelerator accelerator;
    if (around)
      accelerator.prepare(std::make_shared<Around>(saved));
    else
      accelerator.prepare(saved);
    accelerator.save_state(folder);
    const auto load = [&](const std::shared_ptr<PeftModel>& into) {
      Accelerator other;
      if (around)
        other.prepare(std::make_shared<Around>(into));
      else
        other.prepare(into);
      other.load_state(folder);
    };
    const auto reversed = with_adapters("ba"), later = with_adapters("x");
    const auto compiled = compile(later);
    compiled(some_batches()->batch(0, 0));  // from now on a slot is kept for the next that fits
    for (const char* name : {"b", "a"})
      later->add_adapter(name, LoraConfig{.r = 2, .target_modules = std::vector<std::string>{"q_proj"}});
    later->delete_adapter("x");
    for (const auto& into : {reversed, later}) {
      for (const char* name : {"a", "b"})
        for (const auto& [key, tensor] : into->tensors_by_place(name)) tensor.detach().zero_();
      load(into);
      for (const auto& [name, want] : expected) EXPECT_TRUE(at::equal(logits(*into, name), want)) << name;
    }
    EXPECT_SAYS(load(with_adapters("a")), "is in it, and not in the model");
    EXPECT_SAYS(load(with_adapters("abc")), "@adapter.c:");
  }
}

TEST(AcceleratorUse, TorchsOwnArchivesGoByNames) {
  const auto saved = with_adapters("ab");
  std::stringstream archive;
  torch::serialize::OutputArchive out;
  saved->save(out);
  out.save_to(archive);
  const auto load = [&](const std::shared_ptr<PeftModel>& into) {
    torch::serialize::InputArchive in;
    archive.seekg(0);
    in.load_from(archive);
    into->load(in);
  };
  const auto into = with_adapters("ba");
  for (const auto& parameter : into->parameters()) parameter.detach().zero_();
  load(into);
  for (const char* name : {"a", "b"})
    EXPECT_TRUE(at::equal(logits(*into, name), logits(*saved, name))) << name;
  EXPECT_SAYS(load(with_adapters("ac")), "other adapters than this model");
  EXPECT_SAYS(load(with_adapters("a")), "other adapters than this model");
}

TEST(AcceleratorUse, ALossIsOneNumber) {
  Accelerator accelerator;
  const auto x = at::ones(3).requires_grad_(true);
  EXPECT_SAYS(accelerator.backward(x * 2),
              "[accelerator] backward() takes a loss of one number, and was given 3");
  EXPECT_SAYS(accelerator.backward({}), "was given none");
  EXPECT_SAYS(accelerator.backward(at::ones({})), "does not depend on anything that requires a gradient");
  EXPECT_FALSE(x.grad().defined());
  accelerator.backward((x * 2).sum().view({1, 1}));
  EXPECT_TRUE(at::equal(x.grad(), at::full(3, 2.0)));
}

TEST(AcceleratorUse, NothingWhereSomethingShouldBe) {
  Accelerator accelerator;
  EXPECT_SAYS(accelerator.prepare(std::shared_ptr<PeftModel>()), "[accelerator] the model is a null pointer");
  EXPECT_SAYS(accelerator.prepare(std::shared_ptr<torch::optim::AdamW>()),
              "[accelerator] the optimizer is a");
  EXPECT_SAYS(accelerator.prepare(std::shared_ptr<torch::optim::StepLR>()),
              "[accelerator] the scheduler is a");
  EXPECT_SAYS(accelerator.prepare(std::shared_ptr<const TrainingData>()), "[accelerator] the data is a null");
  auto data = accelerator.prepare(some_batches());
  const auto moved = std::move(accelerator);
  const auto moved_data = std::move(data);
  EXPECT_EQ(accelerator.num_processes(), 1);        // NOLINT(bugprone-use-after-move): a move is a copy
  EXPECT_EQ(data.batches(), moved_data.batches());  // NOLINT(bugprone-use-after-move)
}

TEST(CompileStepUse, NumbersThatTorchRefuses) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(3, 1);
  const auto before = net->weight.detach().clone();
  const auto make = [&](const OptimizerConfig& how, const StepOptions& options = {}) {
    return compile_step(
        net, [net](const at::Tensor& x) { return net->forward(x).pow(2).mean(); }, how, options);
  };
  for (const double wrong : {-1.0, kNaN, kInfinity}) {
    EXPECT_SAYS(make(SGD{.lr = wrong}), "[compile_step] lr must be a number from 0, got ");
    EXPECT_SAYS(make(SGD{.momentum = wrong}), "momentum");
    EXPECT_SAYS(make(SGD{.weight_decay = wrong}), "weight_decay");
    EXPECT_SAYS(make(AdamW{.eps = wrong}), "eps");
    EXPECT_SAYS(make(Adam{.weight_decay = wrong}), "weight_decay");
    EXPECT_SAYS(make(AdamW{}).set_lr(wrong), "lr");
  }
  for (const double wrong : {-0.5, 1.0, 1.5, kNaN}) {
    EXPECT_SAYS(make(AdamW{.beta1 = wrong}), "beta1 must be at least 0 and below 1, got ");
    EXPECT_SAYS(make(Adam{.beta2 = wrong}), "beta2");
  }
  EXPECT_SAYS(make(SGD{.dampening = kNaN}), "dampening");
  EXPECT_SAYS(make(SGD{}, {.max_grad_norm = -1}), "max_grad_norm");
  EXPECT_SAYS(make(SGD{}, {.max_grad_norm = kNaN}), "got NaN");
  EXPECT_SAYS(make(SGD{}).set_steps(-1), "set_steps()");
  make(SGD{.lr = 0.1}, {.max_grad_norm = kInfinity})(at::ones({4, 3}));  // to measure the norm
  EXPECT_FALSE(at::equal(net->weight, before));
  EXPECT_TRUE(net->weight.isfinite().all().item<bool>());
}

TEST(CompileStepUse, NothingWhereSomethingShouldBe) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(3, 1);
  const auto loss = [net](const at::Tensor& x) { return net->forward(x).pow(2).mean(); };
  EXPECT_SAYS(compile_step(std::shared_ptr<torch::nn::LinearImpl>(), loss, SGD{}),
              "[compile_step] the module is a null pointer");
  EXPECT_SAYS(compile_step(torch::nn::Linear(nullptr), loss, SGD{}), "the module is a null pointer");
  EXPECT_SAYS(compile_step(net, std::function<at::Tensor(const at::Tensor&)>(), SGD{}),
              "the loss function is empty");
  auto step = compile_step(net, loss, SGD{});
  auto moved = std::move(step);
  moved(at::ones({4, 3}));
  step(at::ones({4, 3}));  // NOLINT(bugprone-use-after-move): a move is a copy
  EXPECT_EQ(moved.steps(), 2);
}

}  // namespace
}  // namespace graft
