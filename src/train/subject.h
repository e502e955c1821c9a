// What is trained: a model's own parameters, or the adapters on it.
#pragma once
#include "train/optimizer.h"

namespace graft::train {

class Subject {
 public:
  virtual ~Subject() = default;
  /// What requires a gradient now, by name.
  virtual NamedTensors named() const = 0;
  /// The same with what else an optimizer is told.
  std::vector<Trained> tensors() const;
  /// UsageError that says why, where there is nothing to train.
  virtual void check_any() const = 0;
  virtual std::shared_ptr<torch::nn::Module> module() const = 0;
  virtual PreTrainedModel& model() const = 0;
  virtual std::function<ModelOutput(const ModelInputs&)> forward() const = 0;
  /// As PEFT or transformers load it.
  virtual void save(const std::filesystem::path& dir) const = 0;
  /// What save() wrote, in place of the present values.
  virtual void load(const std::filesystem::path& dir) = 0;
  /// The same into the tensors that are there, without a look at anything else; false where that cannot be.
  virtual bool load_in_place(const std::filesystem::path& /*dir*/) { return false; }
  /// The same, where training continues with unsaved() on top of it.
  virtual void load_to_resume(const std::filesystem::path& dir) { load(dir); }
  /// What training changes and save() does not write whole: the running statistics under an adapter, the
  /// ranks that AdaLoRA may still give back, the encoder that a prompt is trained through.
  virtual NamedTensors unsaved() const { return {}; }
  /// Whether after_step() looks at the gradients, which then have to be in the tensors' grad.
  virtual bool wants_gradients() const { return false; }
  /// Once the optimizer has done step number `step`, counted from 0.
  virtual void after_step(int64_t /*step*/) {}
};

std::unique_ptr<Subject> train_adapters(std::shared_ptr<PeftModel> model);
std::unique_ptr<Subject> train_all(std::shared_ptr<PreTrainedModel> model);

/// Whether transformers' Trainer applies weight decay to a parameter of that name: neither to biases nor to
/// normalisations. (Those of torch's LayerNorm are left out whatever their name.)
bool decays_by_name(std::string_view name);

}  // namespace graft::train
