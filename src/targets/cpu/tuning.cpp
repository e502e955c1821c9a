#include "targets/cpu/tuning.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "cache/choices.h"
#include "support/host.h"
#include "targets/cpu/device.h"
#include "targets/cpu/launch.h"

namespace graft::cpu {
namespace {

using codegen::Op;

// Instructions times points: what takes a few microseconds is over before a difference shows.
constexpr int64_t worth_trying = 200'000;
constexpr int rounds = 9;
// What is not clearly faster than the usual is noise.
constexpr double clearly = 0.97;

bool is_worth_trying(const codegen::Kernel& kernel) {
  // A scatter's time depends on where its data say that it adds.
  if (kernel.scatters()) return false;
  return kernel.kept_points() * kernel.reduced_points() * static_cast<int64_t>(kernel.code.size()) >=
         worth_trying;
}

/// Zeros for every buffer: as an index, zero is always in range.
class Scratch {
 public:
  explicit Scratch(const codegen::Step& step) {
    const auto& kernel = step.kernel;
    std::vector<int64_t> elements;
    elements.reserve(step.buffers.size());
    for (const auto* value : step.buffers) elements.push_back(value->type().span());
    for (const auto& i : kernel.code)
      if (i.op == Op::load)
        elements[static_cast<size_t>(i.buffer)] =
            std::max(elements[static_cast<size_t>(i.buffer)], i.elements);
    for (size_t i = 0; i < elements.size(); ++i) {
      memory_.push_back(at::zeros({elements[i] * ir::size_of(kernel.buffers[i].dtype)}, at::kByte));
      starts_.push_back(memory_.back().data_ptr());
    }
  }

  void run(const Launcher& launcher) const {
    int32_t failed = 0;
    launcher.launch({.buffers = starts_.data(), .failed = &failed});
  }

 private:
  std::vector<at::Tensor> memory_;
  std::vector<void*> starts_;
};

/// Which of them takes the least time.
int64_t fastest(const codegen::Step& step, const std::vector<std::shared_ptr<const Launcher>>& launchers) {
  const Scratch scratch(step);
  std::vector<std::function<void()>> runs;
  runs.reserve(launchers.size());
  for (const auto& launcher : launchers) runs.emplace_back([&] { scratch.run(*launcher); });
  const auto best = cache::shortest_times(time_of, runs, rounds);
  const auto least = std::min_element(best.begin(), best.end());
  return *least < clearly * best[0] ? least - best.begin() : 0;
}

struct Question {
  std::string text;
  const codegen::Step* step;
  std::vector<Tuning> tunings;
};

std::optional<Question> question_of(const codegen::Step& step) {
  if (!is_worth_trying(step.kernel)) return std::nullopt;
  auto choices = tunings(step.kernel, host());
  if (choices.size() < 2) return std::nullopt;
  std::string text = "which plan, " + std::to_string(at::get_num_threads()) + " threads, " + cpu_name() + ":";
  for (const auto& each : choices) text += " (" + to_string(each) + ")";
  return Question{text + "\n" + to_string(step.kernel), &step, std::move(choices)};
}

/// Compiles what there is to try, all at once, and tries it.
void answer(const std::map<std::string, const Question*>& questions, bool use_cache) {
  std::vector<TunedKernel> all;
  for (const auto& [text, question] : questions)
    for (const auto& tuning : question->tunings) all.push_back({&question->step->kernel, tuning});
  const auto made = compile_kernels(all, use_cache);
  auto next = made.kernels.begin();
  for (const auto& [text, question] : questions) {
    std::vector<std::shared_ptr<const Launcher>> launchers;
    launchers.reserve(question->tunings.size());
    for (size_t i = 0; i < question->tunings.size(); ++i) launchers.push_back(make_launcher(*next++));
    cache::keep_choice(text, fastest(*question->step, launchers), use_cache);
  }
}

}  // namespace

void tune(const codegen::Schedule& schedule, std::vector<TunedKernel>& kernels, bool use_cache) {
  static std::mutex guard;  // measurements would disturb each other
  const std::lock_guard<std::mutex> lock(guard);
  std::vector<std::optional<Question>> asked;
  for (const auto& step : schedule.steps)
    if (!step.external) asked.push_back(question_of(step));
  std::map<std::string, const Question*> open;  // kernels of one text are one question
  for (const auto& question : asked)
    if (question && !cache::known_choice(question->text, use_cache)) open.emplace(question->text, &*question);
  answer(open, use_cache);
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!asked[i]) continue;
    const auto chosen = static_cast<size_t>(*cache::known_choice(asked[i]->text, use_cache));
    if (chosen < asked[i]->tunings.size()) kernels[i].tuning = asked[i]->tunings[chosen];
  }
}

}  // namespace graft::cpu
