#include "training_lines.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace graft::cli {
namespace {

constexpr auto kPause = std::chrono::seconds(10);

template <class... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string evaluation(const TrainingStep& step, bool is_best) {
  auto line = text("step %lld/%lld  evaluation: loss %.4f", static_cast<long long>(step.step),
                   static_cast<long long>(step.max_steps), step.eval->loss);
  if (step.eval->perplexity) line += text("  perplexity %.4g", *step.eval->perplexity);
  if (step.eval->accuracy) line += text("  accuracy %.4f", *step.eval->accuracy);
  return line + (is_best ? "  (the best so far)" : "");
}

}  // namespace

TrainingLines::TrainingLines(int64_t every) : every_(every), redrawn_(every == 0 && isatty(STDERR_FILENO)) {}

void TrainingLines::on_train_begin(const TrainerState& state, TrainerControl&) {
  if (state.global_step == 0) return;
  std::fprintf(stderr, "resumed after step %lld of %lld\n", static_cast<long long>(state.global_step),
               static_cast<long long>(state.max_steps));
  if (state.global_step >= state.max_steps)
    std::fprintf(stderr,
                 "the run is complete: nothing is left to train; a larger --max-steps or --num-train-epochs "
                 "goes on\n");
}

bool TrainingLines::is_time(const TrainingStep& step) {
  if (redrawn_) return true;
  if (every_ > 0) return step.step % every_ == 0;
  const auto now = Clock::now();
  if (counted_ > 1 && step.step < step.max_steps && now - shown_ < kPause) return false;
  shown_ = now;
  return true;
}

void TrainingLines::count(const TrainingStep& step) {
  constexpr double kKeep = 0.9;
  const bool settled = counted_++ > 2;
  seconds_ = settled ? kKeep * seconds_ + (1 - kKeep) * step.seconds : step.seconds;
  tokens_ = settled ? kKeep * tokens_ + (1 - kKeep) * static_cast<double>(step.tokens)
                    : static_cast<double>(step.tokens);
}

void TrainingLines::on_log(const TrainerState& state, TrainerControl&, const TrainingStep& step) {
  count(step);
  if (is_time(step)) {
    const auto left = static_cast<long long>(seconds_ * static_cast<double>(step.max_steps - step.step));
    const auto line =
        text("step %lld/%lld  loss %.4f  learning rate %.3g  %.0f tokens/s  %lld:%02lld:%02lld left",
             static_cast<long long>(step.step), static_cast<long long>(step.max_steps), step.loss,
             step.learning_rate, tokens_ / seconds_, left / 3600, left / 60 % 60, left % 60);
    open_ = redrawn_ && step.step < step.max_steps;
    std::fprintf(stderr, redrawn_ ? "\r%s \033[K%s" : "%s%s", line.c_str(), open_ ? "" : "\n");
  }
  if (!step.eval) return;
  if (open_) std::fprintf(stderr, "\n");
  open_ = false;
  std::fprintf(stderr, "%s\n", evaluation(step, state.best_global_step == step.step).c_str());
}

}  // namespace graft::cli
