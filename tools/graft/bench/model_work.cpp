#include "bench/model_work.h"

#include <ATen/ATen.h>

#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/model.h"
#include "inputs.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;

/// A model's forward pass, or forward and backward into gradients.
class ModelWork : public Work {
 public:
  explicit ModelWork(const ordered_json& request)
      : model_(AutoModelForAny::from_pretrained(folder_of(request) / "model", load_options(request))),
        inputs_(read_inputs(folder_of(request) / "inputs.safetensors", *model_)),
        backward_(request.at("work") == "backward"),
        forward_(compile(model_, options_for(request.at("how")))) {
    model_->train(backward_);
  }

  void call() override {
    const at::AutoGradMode mode(backward_);
    out_ = {};
    if (backward_) model_->zero_grad();
    out_ = forward_(inputs_);
    if (backward_) out_.loss.backward();
  }

  NamedTensors outputs() const override {
    NamedTensors found{{"logits", out_.logits.detach()}};
    if (!backward_) return found;
    found.emplace_back("loss", out_.loss.detach());
    for (const auto& [name, parameter] : model_->unique_parameters())
      if (parameter.grad().defined()) found.emplace_back("grad." + name, parameter.grad());
    return found;
  }

  void nudge() override {
    constexpr double kRoundings = 8 * 0x1p-24;
    const at::NoGradGuard guard;
    for (auto& parameter : model_->parameters())
      parameter.mul_(at::empty_like(parameter).uniform_(1 - kRoundings, 1 + kRoundings));
  }

 private:
  std::shared_ptr<PreTrainedModel> model_;
  ModelInputs inputs_;
  bool backward_;
  Compiled<ModelOutput(const ModelInputs&)> forward_;
  ModelOutput out_;
};

/// Forward, loss, backward and AdamW as one program. Contenders have done equally many steps when results are
/// compared, so the loss shows what the steps before it did. The parameters themselves are no measure: Adam
/// moves one whose gradient is rounding noise as far as any other, in either direction.
class StepWork : public Work {
 public:
  explicit StepWork(const ordered_json& request)
      : model_(AutoModelForAny::from_pretrained(folder_of(request) / "model", load_options(request))),
        inputs_(read_inputs(folder_of(request) / "inputs.safetensors", *model_)),
        step_(compile_step(model_,
                           [model = model_](const ModelInputs& in) { return model->forward(in).loss; },
                           AdamW{}, {.compile = options_for(request.at("how"))})) {
    model_->train(true);
  }

  void call() override {
    loss_ = at::Tensor();
    loss_ = step_(inputs_);
  }
  NamedTensors outputs() const override { return {{"loss", loss_}}; }

 private:
  std::shared_ptr<PreTrainedModel> model_;
  ModelInputs inputs_;
  CompiledStep<at::Tensor(const ModelInputs&)> step_;
  at::Tensor loss_;
};

}  // namespace

std::unique_ptr<Work> load_model_work(const ordered_json& request) {
  if (request.at("work") == "step") return std::make_unique<StepWork>(request);
  return std::make_unique<ModelWork>(request);
}

}  // namespace graft::cli::bench
