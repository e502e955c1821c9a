#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "graft/error.h"
#include "support/counted.h"

namespace graft::train {
namespace {

double constant(const Schedule&, int64_t) { return 1; }

double linear(const Schedule& s, int64_t step) {
  return std::max(0.0, static_cast<double>(s.total() - step) /
                           static_cast<double>(std::max<int64_t>(1, s.total() - s.warmup())));
}

double cosine(const Schedule& s, int64_t step) {
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * s.progress(step))));
}

/// One cycle, as transformers has it by default: then it differs from "cosine" only past the end.
double cosine_with_restarts(const Schedule& s, int64_t step) {
  return s.progress(step) >= 1 ? 0 : cosine(s, step);
}

constexpr double kPolynomialEnd = 1e-7;  // transformers' lr_end; its power is 1

double polynomial(const Schedule& s, int64_t step) {
  if (step > s.total()) return kPolynomialEnd / s.base();
  const double left =
      1 - static_cast<double>(step - s.warmup()) / static_cast<double>(s.total() - s.warmup());
  return ((s.base() - kPolynomialEnd) * left + kPolynomialEnd) / s.base();
}

double inverse_sqrt(const Schedule& s, int64_t step) {
  const auto scale = static_cast<double>(s.warmup() > 0 ? s.warmup() : 10'000);
  return 1 / std::sqrt((static_cast<double>(step - s.warmup()) + scale) / scale);
}

constexpr std::pair<const char*, Schedule::Factor> kKnown[] = {
    {"linear", linear},
    {"cosine", cosine},
    {"cosine_with_restarts", cosine_with_restarts},
    {"polynomial", polynomial},
    {"constant", constant},
    {"constant_with_warmup", constant},
    {"inverse_sqrt", inverse_sqrt},
};

}  // namespace

Schedule::Schedule(const std::string& name, double learning_rate, int64_t warmup_steps, int64_t total_steps)
    : factor_(nullptr), base_(learning_rate), warmup_(warmup_steps), total_(total_steps) {
  std::string known;
  for (const auto& [each, factor] : kKnown) {
    if (name == each) factor_ = factor;
    known += (known.empty() ? "" : ", ") + std::string(each);
  }
  if (factor_ == nullptr)
    throw UsageError("[train] lr_scheduler_type \"" + name + "\" is unknown; known: " + known);
  if (!(base_ > 0) || !std::isfinite(base_))
    throw UsageError("[train] the learning rate must be a number above 0, got " + shown(base_));
  if (factor_ == polynomial && base_ <= kPolynomialEnd)
    throw UsageError("[train] the polynomial schedule ends at 1e-7: the learning rate must be above that");
  // "constant" has no warm-up in transformers, whatever warmup_steps says.
  if (name == "constant") warmup_ = 0;
}

double Schedule::learning_rate(int64_t step) const {
  if (step < warmup_) return base_ * (static_cast<double>(step) / static_cast<double>(warmup_));
  return base_ * factor_(*this, step);
}

double Schedule::progress(int64_t step) const {
  return static_cast<double>(step - warmup_) / static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
}

int64_t warmup_count(double warmup_steps, int64_t total_steps) {
  if (!(warmup_steps >= 0) || warmup_steps >= kMostSteps)
    throw UsageError("[train] warmup_steps must be a number from 0 to 2^53, got " + shown(warmup_steps));
  if (warmup_steps >= 1) return static_cast<int64_t>(warmup_steps);
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * warmup_steps));
}

}  // namespace graft::train
