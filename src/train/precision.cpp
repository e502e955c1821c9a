#include "train/precision.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "graft/error.h"

namespace graft::train {

Autocast::Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype) : device_(device) {
  if (!dtype) return;
  before_ = at::autocast::get_autocast_dtype(device);
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, *dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!before_) return;
  // Casts of weights are kept for the outermost scope only.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, *before_);
}

std::optional<at::ScalarType> autocast_dtype(const TrainingArguments& arguments) {
  if (arguments.bf16 && arguments.fp16) throw UsageError("[train] bf16 and fp16 exclude each other");
  if (arguments.bf16) return at::kBFloat16;
  if (arguments.fp16) return at::kHalf;
  return {};
}

std::function<ModelOutput(const ModelInputs&)> forward_under_autocast(const Subject& subject,
                                                                      const TrainingArguments& arguments) {
  return [forward = subject.forward(), device = subject.model().device().type(),
          dtype = autocast_dtype(arguments)](const ModelInputs& inputs) {
    const Autocast autocast(device, dtype);
    return forward(inputs);
  };
}

bool LossScaler::unscale(const std::vector<at::Tensor>& gradients) {
  constexpr int64_t kGrowthInterval = 2000;
  constexpr double kGrowth = 2, kBackoff = 0.5;
  std::vector<at::Tensor> there;
  for (const auto& gradient : gradients)
    if (gradient.defined()) there.push_back(gradient);
  if (std::any_of(there.begin(), there.end(), [](const auto& g) { return g.scalar_type() == at::kHalf; }))
    throw UsageError(
        "[train] with fp16 the loss is scaled for weights in float32, and some that are trained are float16: "
        "load the model in float32 (--dtype float32)");
  bool finite = true;
  if (!there.empty()) {
    auto found = at::zeros({1}, there[0].options().dtype(at::kFloat));
    const auto inverse = at::full({1}, 1 / scale(), found.options());
    at::_amp_foreach_non_finite_check_and_unscale_(there, found, inverse);
    finite = found.item<float>() == 0;
  }
  if (!finite) {
    scale_.mul_(kBackoff);
    good_steps_.zero_();
  } else if (good_steps_.add_(1).item<int64_t>() == kGrowthInterval) {
    scale_.mul_(kGrowth);
    good_steps_.zero_();
  }
  return finite;
}

}  // namespace graft::train
