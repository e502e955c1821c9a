// When a row ends: with a token, with a text, or because time is over.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>

#include "generation/stop_strings.h"
#include "graft/generate.h"

namespace graft::generation {

class Stops {
 public:
  /// Time runs from here on.
  Stops(const GenerationConfig& config, std::shared_ptr<const Tokenizer> tokenizer);

  /// Whether anything but the full length ends a row.
  bool any() const { return any_; }
  /// Whether the last of these tokens ends the row.
  bool ended_by(std::span<const int64_t> ids) const;
  /// The same of each row of `ids` [rows, length], [rows].
  at::Tensor ended_by(const at::Tensor& ids) const;
  /// Whether max_time is over: then this step is the last.
  bool late() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> eos_;
  mutable at::Tensor eos_on_device_;
  StopStrings strings_;
  bool any_, reads_text_;
  std::optional<double> seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace graft::generation
