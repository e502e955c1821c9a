// What is trained: a model's own parameters, or the adapters on it.
#pragma once
#include "train/optimizer.h"

namespace graft::train {

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::vector<Trained> tensors() const = 0;
  virtual std::shared_ptr<torch::nn::Module> module() const = 0;
  virtual PreTrainedModel& model() const = 0;
  virtual std::function<ModelOutput(const ModelInputs&)> forward() const = 0;
  /// The loss alone: a compiled program whose only result it is stores no logits.
  std::function<at::Tensor(const ModelInputs&)> loss() const {
    return [forward = forward()](const ModelInputs& inputs) { return forward(inputs).loss; };
  }
  /// As PEFT or transformers load it.
  virtual void save(const std::filesystem::path& dir) const = 0;
  /// What save() wrote, in place of the present values.
  virtual void load(const std::filesystem::path& dir) = 0;
  /// What training changes and save() does not write: the running statistics under an adapter.
  virtual NamedTensors unsaved() const { return {}; }
};

std::unique_ptr<Subject> train_adapters(std::shared_ptr<PeftModel> model);
std::unique_ptr<Subject> train_all(std::shared_ptr<PreTrainedModel> model);

/// Whether transformers' Trainer applies weight decay to a parameter of that name: neither to biases nor to
/// normalisations. (Those of torch's LayerNorm are left out whatever their name.)
bool decays_by_name(std::string_view name);

}  // namespace graft::train
