#include "bench/train_work.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <semaphore>
#include <thread>

#include "bench/adapter_work.h"
#include "bench/statistics.h"
#include "graft/error.h"
#include "graft/trainer.h"
#include "report.h"
#include "runtime/memory_meter.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// The first two steps of a compiled model are its checks, and the next the first of a steady run.
constexpr size_t kSettled = 3;

/// Holds a run before each step until it is let go. What it sees of a step is all that lies between two
/// begins: the batch, the step, the files, the callbacks.
class Gate : public TrainerCallback {
 public:
  struct Closed {};

  void on_step_begin(const TrainerState& state, TrainerControl&) override {
    const auto now = Clock::now();
    if (!state.log_history.empty()) {
      const auto& done = state.log_history.back();
      loss_ = done.loss;
      outside_.push_back(std::chrono::duration<double>(now - begun_).count() / done.compute_seconds - 1);
      if (outside_.size() == kSettled) meter_->start_again();
    }
    parked_.release();
    go_.acquire();
    if (closing_) throw Closed{};
    begun_ = Clock::now();
  }

  /// The run's thread, when it is over: nobody waits for it any more.
  void over(std::exception_ptr why) {
    failed_ = std::move(why);
    parked_.release();
  }
  /// Counts the run's memory; on its thread.
  void watch(MemoryMeter& meter) { meter_ = &meter; }

  void wait() {
    parked_.acquire();
    if (failed_) std::rethrow_exception(failed_);
  }
  void step() {
    if (failed_) std::rethrow_exception(failed_);
    go_.release();
    wait();
  }
  void close() {
    closing_ = true;
    go_.release();
  }

  double loss() const { return loss_; }
  /// The time outside of forward, backward and optimizer, in that inside: the median over settled steps.
  double host_share() const {
    if (outside_.size() <= kSettled) throw Error("[bench] too few steps to say what lies outside of them");
    return quartiles({outside_.begin() + kSettled, outside_.end()}).median;
  }
  int64_t peak() const { return meter_->peak(); }

 private:
  std::binary_semaphore parked_{0}, go_{0};
  // Both threads', never at a time: the semaphores say whose turn it is.
  std::exception_ptr failed_;
  bool closing_ = false;
  MemoryMeter* meter_ = nullptr;
  Clock::time_point begun_;
  std::vector<double> outside_;
  double loss_ = std::numeric_limits<double>::quiet_NaN();
};

/// A run of the Trainer in a thread of its own, of which a call lets one step happen.
class TrainWork : public Work {
 public:
  explicit TrainWork(const ordered_json& request)
      : gate_(std::make_shared<Gate>()), run_([this, request] { run(request); }) {
    try {
      gate_->wait();
    } catch (...) {
      run_.join();
      throw;
    }
  }
  ~TrainWork() override {
    gate_->close();
    run_.join();
  }
  TrainWork(const TrainWork&) = delete;
  TrainWork& operator=(const TrainWork&) = delete;

  void call() override { gate_->step(); }
  NamedTensors outputs() const override { return {{"loss", at::scalar_tensor(gate_->loss(), at::kFloat)}}; }
  ordered_json facts() const override {
    return {{"peak_bytes", held_ + gate_->peak()}, {"host_share", gate_->host_share()}};
  }

 private:
  void run(const ordered_json& request) {
    try {
      train(request);
    } catch (const Gate::Closed&) {  // NOLINT(bugprone-empty-catch): the run is not wanted any more
    } catch (...) {
      gate_->over(std::current_exception());
    }
  }

  void train(const ordered_json& request) {
    const auto folder = folder_of(request);
    const auto data = read_tokens(folder / "inputs.safetensors");
    const auto model = AutoModelForAny::from_pretrained(folder / "model", load_options(request));
    // The model's weights are the mapped file's, which the meter does not see. Adapters come after it.
    held_ = held_bytes(*model);
    MemoryMeter meter;
    gate_->watch(meter);
    const TrainingArguments arguments{.output_dir = folder / ("run-" + std::to_string(::getpid())),
                                      .learning_rate = 1e-4,
                                      .lr_scheduler_type = "constant",
                                      .max_steps = std::numeric_limits<int32_t>::max(),
                                      .save_steps = 0,
                                      .compile = options_for(request.at("how"))};
    auto trainer = request.at("adapter").is_null()
                       ? Trainer(model, arguments, data)
                       : Trainer(first_adapter_on(model, request), arguments, data);
    trainer.add_callback(gate_);
    trainer.train();
  }

  std::shared_ptr<Gate> gate_;
  int64_t held_ = 0;
  std::thread run_;  // the last: it uses the others
};

}  // namespace

std::unique_ptr<Work> load_train_work(const ordered_json& request) {
  return std::make_unique<TrainWork>(request);
}

}  // namespace graft::cli::bench
