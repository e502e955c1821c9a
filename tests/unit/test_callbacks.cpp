// Callbacks of a training run: when they are called, what they are told, and what they may ask for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graft/error.h"
#include "graft/trainer.h"
#include "train/callbacks.h"
#include "unit/temp_dir.h"
#include "unit/tiny_decoders.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

/// Three batches an epoch.
class Three : public TrainingData {
 public:
  int64_t batches() const override { return 3; }
  ModelInputs batch(int64_t, int64_t index) const override {
    ModelInputs inputs;
    inputs.input_ids = at::arange(index, index + 12, at::kLong).reshape({2, 6}) + 3;
    return inputs;
  }
};

std::string number(int64_t value) { return std::to_string(value); }

/// Writes down what it is told.
struct Diary : TrainerCallback {
  std::vector<std::string> seen;

  void on_train_begin(const TrainerState& s, TrainerControl&) override { add("train_begin", s); }
  void on_epoch_begin(const TrainerState& s, TrainerControl&) override { add("epoch_begin", s); }
  void on_step_begin(const TrainerState& s, TrainerControl&) override { add("step_begin", s); }
  void on_optimizer_step(const TrainerState& s, TrainerControl&) override { add("optimizer", s); }
  void on_step_end(const TrainerState& s, TrainerControl& c) override {
    add("step_end", s);
    EXPECT_EQ(s.loss, s.log_history.back().loss);
    EXPECT_TRUE(c.should_log);
  }
  void on_epoch_end(const TrainerState& s, TrainerControl&) override { add("epoch_end", s); }
  void on_evaluate(const TrainerState& s, TrainerControl&, const EvalMetrics& metrics) override {
    add("evaluate", s);
    EXPECT_LE(*s.best_metric, metrics.loss);
  }
  void on_log(const TrainerState& s, TrainerControl&, const TrainingStep& step) override {
    add("log", s);
    EXPECT_EQ(step.step, s.global_step);
  }
  void on_save(const TrainerState& s, TrainerControl&) override { add("save", s); }
  void on_train_end(const TrainerState& s, TrainerControl&) override { add("train_end", s); }

  void add(const std::string& what, const TrainerState& state) {
    seen.push_back(what + " " + number(state.global_step));
    EXPECT_TRUE(state.is_world_process_zero);
    EXPECT_EQ(static_cast<int64_t>(state.log_history.size()), state.global_step);
  }
};

/// One that asks for something after a step.
struct Asks : TrainerCallback {
  std::function<void(const TrainerState&, TrainerControl&)> ask;
  explicit Asks(std::function<void(const TrainerState&, TrainerControl&)> what) : ask(std::move(what)) {}
  void on_step_end(const TrainerState& s, TrainerControl& c) override { ask(s, c); }
};

struct TestRun {
  std::shared_ptr<PreTrainedModel> model = testing_tools::tiny_decoder("llama");
  Trainer trainer;
  std::shared_ptr<Diary> diary = std::make_shared<Diary>();

  explicit TestRun(TrainingArguments arguments) : trainer(prepared(model), std::move(arguments), data()) {
    trainer.add_callback(diary);
  }
  static std::shared_ptr<PreTrainedModel> prepared(const std::shared_ptr<PreTrainedModel>& model) {
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(true);
    return model;
  }
  static std::shared_ptr<const TrainingData> data() { return std::make_shared<Three>(); }
  void ask(std::function<void(const TrainerState&, TrainerControl&)> what) {
    trainer.add_callback(std::make_shared<Asks>(std::move(what)));
  }
  int64_t count(const std::string& what) const {
    return std::count_if(diary->seen.begin(), diary->seen.end(),
                         [&](const auto& line) { return line.starts_with(what + " "); });
  }
};

TEST(Callbacks, AreCalledInOrder) {
  const TempDir temp;
  TestRun run({.output_dir = temp / "out", .max_steps = 4, .save_steps = 2, .eval_steps = 3});
  run.trainer.evaluate_on(TestRun::data());
  EXPECT_FALSE(run.trainer.train().stopped_early);
  const std::vector<std::string> expected{
      "train_begin 0", "epoch_begin 0", "step_begin 0", "optimizer 0", "step_end 1", "log 1",
      "step_begin 1",  "optimizer 1",   "step_end 2",   "log 2",       "save 2",     "step_begin 2",
      "optimizer 2",   "step_end 3",    "epoch_end 3",  "evaluate 3",  "log 3",      "epoch_begin 3",
      "step_begin 3",  "optimizer 3",   "step_end 4",   "log 4",       "save 4",     "train_end 4"};
  EXPECT_EQ(run.diary->seen, expected);
}

TEST(Callbacks, AskForMoreAndForLess) {
  const TempDir temp;
  TestRun run({.output_dir = temp / "out", .max_steps = 4, .save_steps = 2, .eval_steps = 2});
  run.trainer.evaluate_on(TestRun::data());
  run.ask([](const TrainerState& state, TrainerControl& control) {
    control.should_save = control.should_evaluate = control.should_log = state.global_step == 3;
  });
  const auto out = run.trainer.train();
  EXPECT_EQ(run.count("save"), 1);
  EXPECT_EQ(run.count("evaluate"), 1);
  EXPECT_EQ(run.count("log"), 1);
  EXPECT_TRUE(fs::exists(temp / "out" / "checkpoint-3" / "trainer_state.json"));
  EXPECT_FALSE(fs::exists(temp / "out" / "checkpoint-2"));
  EXPECT_EQ(out.best_step, 3);
}

TEST(Callbacks, StopARunThatGoesOnLater) {
  const TempDir temp;
  const TrainingArguments arguments{.output_dir = temp / "out", .max_steps = 5};
  TestRun run(arguments), whole({.max_steps = 5});
  run.ask([](const TrainerState& state, TrainerControl& control) {
    control.should_training_stop = control.should_save = state.global_step == 2;
  });
  const auto out = run.trainer.train();
  EXPECT_EQ(out.global_step, 2);
  EXPECT_TRUE(out.stopped_early);
  EXPECT_EQ(run.diary->seen.back(), "train_end 2");
  EXPECT_EQ(run.count("epoch_end"), 0);

  TestRun rest(arguments);
  const auto resumed = rest.trainer.train(/*resume=*/true);
  EXPECT_EQ(rest.diary->seen[0], "train_begin 2");
  EXPECT_EQ(rest.diary->seen[1], "epoch_begin 2");
  EXPECT_EQ(resumed.losses, whole.trainer.train().losses);
}

TEST(Callbacks, AnExceptionLeavesTheRunInOrder) {
  const TempDir temp;
  const TrainingArguments arguments{.output_dir = temp / "out", .max_steps = 6, .save_steps = 2};
  for (const int64_t when : {1, 4}) {
    TestRun run(arguments);
    run.ask([&](const TrainerState& state, TrainerControl&) {
      if (state.global_step == when) throw std::runtime_error("enough");
    });
    EXPECT_THROW(run.trainer.train(/*resume=*/when > 1), std::runtime_error);
    EXPECT_FALSE(run.model->is_training());  // as it was before
  }
  // The one of step 4 was not begun: its step was not over.
  EXPECT_TRUE(fs::exists(temp / "out" / "checkpoint-2"));
  EXPECT_FALSE(fs::exists(temp / "out" / "checkpoint-4"));
  TestRun rest(arguments), whole({.max_steps = 6});
  EXPECT_EQ(rest.trainer.train(/*resume=*/true).losses, whole.trainer.train().losses);
}

/// Two processes, of which the other one always asks for a checkpoint, and has a callback.
class WithAnother : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(const at::Tensor& sum) override {
    sum.add_(sum.dim() == 0 ? at::ones({}, at::kLong) : at::tensor({0, 0, 1}));
  }
  void broadcast(const at::Tensor&, int) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor, tensor}; }
  void barrier() override {}
  void fail(const std::string&) override {}
};

TEST(Callbacks, WhatOneProcessAsksForAllDo) {
  train::Callbacks callbacks;
  callbacks.begin(std::make_shared<WithAnother>());
  callbacks.control.should_evaluate = true;
  callbacks.agree();
  EXPECT_TRUE(callbacks.control.should_save);
  EXPECT_TRUE(callbacks.control.should_evaluate);
  EXPECT_FALSE(callbacks.control.should_training_stop);
}

TEST(Callbacks, WhatCannotBeDoneIsSaid) {
  TestRun saves({.max_steps = 2}), evaluates({.max_steps = 2});
  saves.ask([](const TrainerState&, TrainerControl& control) { control.should_save = true; });
  evaluates.ask([](const TrainerState&, TrainerControl& control) { control.should_evaluate = true; });
  EXPECT_THROW(saves.trainer.train(), UsageError);
  EXPECT_THROW(evaluates.trainer.train(), UsageError);
  EXPECT_THROW(saves.trainer.add_callback(nullptr), UsageError);
}

}  // namespace
}  // namespace graft
