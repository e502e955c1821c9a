#include "generation/stops.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace graft::generation {

Stops::Stops(const GenerationConfig& config, std::shared_ptr<const Tokenizer> tokenizer)
    : eos_(config.eos_token_id),
      strings_(config.stop_strings, std::move(tokenizer)),
      any_(!config.eos_token_id.empty() || !config.stop_strings.empty()),
      reads_text_(!config.stop_strings.empty()),
      seconds_(config.max_time) {}

bool Stops::ended_by(std::span<const int64_t> ids) const {
  return std::find(eos_.begin(), eos_.end(), ids.back()) != eos_.end() || strings_.completed_by(ids);
}

at::Tensor Stops::ended_by(const at::Tensor& ids) const {
  const auto last = ids.select(1, ids.size(1) - 1);
  if (!eos_on_device_.defined()) eos_on_device_ = at::tensor(eos_, ids.options());
  auto ended = at::isin(last, eos_on_device_);
  if (!reads_text_) return ended;
  const auto host = ids.cpu().contiguous();
  const auto* values = host.const_data_ptr<int64_t>();
  auto completed = at::zeros({ids.size(0)}, at::kBool);
  for (int64_t row = 0; row < ids.size(0); ++row)
    completed.mutable_data_ptr<bool>()[row] =
        strings_.completed_by({values + row * ids.size(1), static_cast<size_t>(ids.size(1))});
  return ended.logical_or(completed.to(ids.device()));
}

bool Stops::late() const {
  return seconds_ && std::chrono::duration<double>(Clock::now() - start_).count() > *seconds_;
}

}  // namespace graft::generation
