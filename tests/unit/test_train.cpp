// Training: what has no counterpart in Python to be compared with. (The rest: tests/oracle/test_train.py.)
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "graft/error.h"
#include "graft/trainer.h"
#include "train/optimizer.h"
#include "train/random_state.h"
#include "train/run_folder.h"
#include "train/schedule.h"
#include "train/subject.h"
#include "train/whole_folder.h"
#include "unit/temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

TEST(Schedule, WarmupIsANumberOrAShare) {
  EXPECT_EQ(train::warmup_count(0, 50), 0);
  EXPECT_EQ(train::warmup_count(7, 50), 7);
  EXPECT_EQ(train::warmup_count(0.03, 50), 2);  // 1.5 rounded up
  for (const double wrong : {-1.0, 1e300, std::nan("")})
    EXPECT_THROW(train::warmup_count(wrong, 50), UsageError);
}

TEST(Schedule, WrongOnesAreNamed) {
  EXPECT_THROW(train::Schedule("steep", 1e-3, 0, 10), UsageError);
  EXPECT_THROW(train::Schedule("linear", 0, 0, 10), UsageError);
  EXPECT_THROW(train::Schedule("polynomial", 1e-8, 0, 10), UsageError);
}

TEST(WeightDecay, SparesBiasesAndNormalisations) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "transformer.h.0.normal.weight",
                           "base_model.model.layers.0.q_proj.lora_A.weight", "resnet.normalization.weight"})
    EXPECT_TRUE(train::decays_by_name(name)) << name;
  for (const char* name : {"a.q_proj.bias", "model.norm.weight", "norm", "a.q_norm.weight",
                           "a.LayerNorm.weight", "model.layers.0.input_layernorm.weight", "a.RMSNorm.scale"})
    EXPECT_FALSE(train::decays_by_name(name)) << name;
}

TEST(Clipping, LeavesSmallGradientsAlone) {
  const auto small = at::full({4}, 0.1), large = at::full({4}, 10.0);
  EXPECT_NEAR(train::clip_grad_norm({small, at::Tensor()}, 1).item<double>(), 0.2, 1e-6);
  EXPECT_TRUE(at::allclose(small, at::full({4}, 0.1)));
  EXPECT_NEAR(train::clip_grad_norm({large}, 1).item<double>(), 20, 1e-4);
  EXPECT_NEAR(large.norm().item<double>(), 1, 1e-5);
}

std::vector<TrainingStep> steps_up_to(int64_t last) {
  std::vector<TrainingStep> log;
  for (int64_t step = 1; step <= last; ++step)
    log.push_back({.step = step, .max_steps = 9, .loss = 2.5, .grad_norm = 0.1});
  return log;
}

TEST(RunFolder, FindsTheLastWholeCheckpoint) {
  const TempDir temp;
  const train::RunFolder folder(temp.path() / "out");
  const auto write = [](const fs::path& dir) { std::ofstream(dir / "weights") << "1234"; };
  EXPECT_FALSE(folder.last());
  for (const int64_t step : {2, 10, 9}) folder.save(step, steps_up_to(step), {"base", {{"seed", 1}}}, write);
  ASSERT_TRUE(folder.last());
  EXPECT_EQ(folder.last()->global_step, 10);  // by number, not by name
  EXPECT_EQ(folder.last()->log[0].loss, 2.5);
  EXPECT_EQ(folder.last()->identity.arguments["seed"], 1);
  EXPECT_EQ(folder.last()->identity.base, "base");

  std::ofstream(temp.path() / "out" / "checkpoint-10" / "weights") << "123";
  EXPECT_EQ(folder.last()->global_step, 9);
  // As a power cut leaves it: of the right size.
  std::ofstream(temp.path() / "out" / "checkpoint-9" / "weights") << "1235";
  EXPECT_EQ(folder.trouble_with(9), "weights is damaged: it is not what was written");
  EXPECT_EQ(folder.trouble_with(2), "");
  EXPECT_EQ(folder.trouble_with(3), "it is missing");
  EXPECT_EQ(folder.last()->global_step, 2);
  std::ofstream(temp.path() / "out" / "checkpoint-9" / "weights") << "1234";
  fs::create_directory(temp.path() / "out" / "checkpoint-11");
  fs::create_directory(temp.path() / "out" / "checkpoint-x");
  EXPECT_EQ(folder.last()->global_step, 9);
}

TEST(RunFolder, NumbersThatJsonHasNotComeBack) {
  const TempDir temp;
  const train::RunFolder folder(temp.path());
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<TrainingStep> log{
      {.step = 1, .loss = std::nan(""), .grad_norm = infinity},
      {.step = 2, .loss = -infinity, .eval = EvalMetrics{.loss = 3, .perplexity = infinity}}};
  folder.save(2, log, {"base", {{"seed", 1}}}, [](const fs::path&) {});
  const auto read = folder.last()->log;
  EXPECT_TRUE(std::isnan(read[0].loss));
  EXPECT_EQ(read[0].grad_norm, infinity);
  EXPECT_EQ(read[1].loss, -infinity);
  EXPECT_EQ(read[1].eval->loss, 3);
  EXPECT_EQ(read[1].eval->perplexity, infinity);
}

TEST(RunFolder, AFailedSaveLeavesNothing) {
  const TempDir temp;
  const train::RunFolder folder(temp.path());
  const train::RunIdentity run{.arguments = nlohmann::json::object()};
  folder.save(1, steps_up_to(1), run, [](const fs::path&) {});
  EXPECT_THROW(folder.save(2, {}, run, [](const fs::path&) { throw IoError("the disk is full"); }), IoError);
  ASSERT_TRUE(folder.last());
  EXPECT_EQ(folder.last()->global_step, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()), 2);  // and the lock
}

TEST(RunFolder, CleansUpAndKeepsTheLast) {
  const TempDir temp;
  fs::create_directory(temp.path() / ".unfinished-checkpoint-3");
  const train::RunFolder folder(temp.path());
  EXPECT_FALSE(fs::exists(temp.path() / ".unfinished-checkpoint-3"));
  for (const int64_t step : {1, 2, 10}) folder.save(step, {}, {}, [](const fs::path&) {});
  folder.keep_last(2);
  EXPECT_FALSE(fs::exists(temp.path() / "checkpoint-1"));
  EXPECT_TRUE(fs::exists(temp.path() / "checkpoint-2"));
  EXPECT_TRUE(fs::exists(temp.path() / "checkpoint-10"));
}

TEST(WholeFolder, TakesTheOldOnesPlaceInOneGo) {
  const TempDir temp;
  const auto unfinished = temp / "state.unfinished", whole = temp / "state";
  const auto write = [](const char* text) {
    return [text](const fs::path& dir) { std::ofstream(dir / text) << text; };
  };
  train::write_whole_folder(unfinished, whole, write("first"));
  EXPECT_THROW(train::write_whole_folder(unfinished, whole,
                                         [&](const fs::path& dir) {
                                           EXPECT_TRUE(fs::exists(whole / "first"));
                                           std::ofstream(dir / "half") << "half";
                                           throw IoError("the disk is full");
                                         }),
               IoError);
  EXPECT_TRUE(fs::exists(whole / "first"));
  fs::create_directory(unfinished);  // of a process that was killed
  std::ofstream(unfinished / "left over") << "1";
  train::write_whole_folder(unfinished, whole, write("second"));
  EXPECT_TRUE(fs::exists(whole / "second"));
  EXPECT_FALSE(fs::exists(whole / "first"));
  EXPECT_FALSE(fs::exists(whole / "left over"));
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()), 1);
}

TEST(RandomState, GoesOnWhereItStood) {
  const TempDir temp;
  const auto group = ProcessGroup::connect({});
  at::manual_seed(7);
  at::rand({3});
  const auto state = train::random_state(*group);
  EXPECT_EQ(state.size(), torch::cuda::device_count() + 1U);
  save_safetensors(temp / "random", state);
  const auto expected = at::rand({5});
  // Also for a process that was not there: it begins where the first stood.
  for (const int rank : {0, 3}) {
    at::rand({11});
    train::restore_random_state(*SafetensorsFile::open(temp / "random"), rank);
    EXPECT_TRUE(at::equal(at::rand({5}), expected));
  }
}

}  // namespace
}  // namespace graft
