// Mixed precision: the forward pass under torch's autocast, and float16's gradients scaled so that they do
// not vanish.
#pragma once
#include "train/subject.h"

namespace graft::train {

/// Autocast to `dtype` for this thread and kind of device while it lives; nothing happens without a dtype.
class Autocast {
 public:
  Autocast(at::DeviceType device, std::optional<at::ScalarType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  std::optional<at::ScalarType> before_;  ///< the dtype that was set; nothing: not switched on here
  bool was_enabled_ = false;
};

/// What the arguments ask for: bf16 or fp16. UsageError where they ask for both.
std::optional<at::ScalarType> autocast_dtype(const TrainingArguments& arguments);

/// The subject's forward under the autocast that the arguments ask for, which is switched on inside of what
/// is compiled: backward is not under it, as in Python.
std::function<ModelOutput(const ModelInputs&)> forward_under_autocast(const Subject& subject,
                                                                      const TrainingArguments& arguments);

/// torch.amp.GradScaler with its defaults: the loss is multiplied by a scale that grows slowly and is halved
/// as soon as a gradient overflows; that step is left out.
class LossScaler {
 public:
  double scale() const { return scale_.item<double>(); }
  /// Divides the gradients by the scale; gives whether all of them are finite, and sets the next scale.
  bool unscale(const std::vector<at::Tensor>& gradients);
  /// To be saved and to be written into.
  NamedTensors state() const {
    return {{"loss_scaler.scale", scale_}, {"loss_scaler.good_steps", good_steps_}};
  }

 private:
  at::Tensor scale_ = at::scalar_tensor(65536.0, at::kDouble), good_steps_ = at::scalar_tensor(0, at::kLong);
};

}  // namespace graft::train
