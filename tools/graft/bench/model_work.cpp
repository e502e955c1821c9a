#include "bench/work.h"

#include <ATen/ATen.h>

#include <map>

#include "bench/adapter_work.h"
#include "bench/decode.h"
#include "bench/train.h"
#include "graft/compile.h"
#include "graft/compile_step.h"
#include "graft/error.h"
#include "graft/model.h"
#include "inputs.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

/// A model's forward pass, or forward and backward into gradients.
class ModelWork : public Work {
 public:
  ModelWork(const fs::path& folder, bool backward, const std::string& how)
      : model_(AutoModelForAny::from_pretrained(folder / "model")),
        inputs_(read_inputs(folder / "inputs.safetensors", *model_)),
        backward_(backward),
        forward_(compile(model_, options_for(how))) {
    model_->train(backward);
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
  StepWork(const fs::path& folder, const std::string& how)
      : model_(AutoModelForAny::from_pretrained(folder / "model")),
        inputs_(read_inputs(folder / "inputs.safetensors", *model_)),
        step_(compile_step(model_,
                           [model = model_](const ModelInputs& in) { return model->forward(in).loss; },
                           AdamW{}, {.compile = options_for(how)})) {
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

using Tensors = std::vector<at::Tensor>;

at::Tensor pointwise(const Tensors& in) { return at::gelu(in[0]) * in[1] + in[2]; }
at::Tensor layer_norm(const Tensors& in) { return at::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2]); }
at::Tensor rms_norm(const Tensors& in) { return at::rms_norm(in[0], {in[0].size(-1)}, in[1], 1e-6); }
at::Tensor softmax(const Tensors& in) { return at::softmax(in[0], -1); }
at::Tensor cross_entropy(const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }

using Op = at::Tensor (*)(const Tensors&);

Op op_named(const std::string& name) {
  static const std::map<std::string, Op> known{{"pointwise", pointwise},
                                               {"layer_norm", layer_norm},
                                               {"rms_norm", rms_norm},
                                               {"softmax", softmax},
                                               {"cross_entropy", cross_entropy}};
  const auto found = known.find(name);
  if (found == known.end()) throw UsageError("[bench] the work \"" + name + "\" is unknown");
  return found->second;
}

/// One op over tensors, without gradients.
class OpWork : public Work {
 public:
  OpWork(const fs::path& folder, const std::string& op, const std::vector<std::string>& names,
         const std::string& how)
      : op_(compile(std::function<at::Tensor(const Tensors&)>(op_named(op)), options_for(how))) {
    const auto file = SafetensorsFile::open(folder / "inputs.safetensors");
    // Copies: a mapped file has small pages, and bandwidth is what is measured.
    for (const auto& name : names) inputs_.push_back(file->tensor(name).clone());
  }

  void call() override {
    const at::NoGradGuard guard;
    out_ = at::Tensor();
    out_ = op_(inputs_);
  }
  NamedTensors outputs() const override { return {{"out", out_}}; }

 private:
  Compiled<at::Tensor(const Tensors&)> op_;
  Tensors inputs_;
  at::Tensor out_;
};

/// Reads and writes `bytes` in all, as plainly as can be.
class CopyWork : public Work {
 public:
  explicit CopyWork(int64_t bytes)
      : from_(at::ones({bytes / 2 / 4}, at::kFloat)), to_(at::zeros_like(from_)) {}
  void call() override { to_.copy_(from_); }
  NamedTensors outputs() const override { return {{"out", to_}}; }

 private:
  at::Tensor from_, to_;
};

at::Tensor random_tensor(const ordered_json& wanted) {
  const auto shape = wanted.at("shape").get<std::vector<int64_t>>();
  const auto dtype = wanted.at("dtype").get<std::string>();
  if (wanted.contains("below")) return at::randint(wanted["below"].get<int64_t>(), shape, at::kLong);
  return at::randn(shape).to(dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
}

}  // namespace

CompileOptions options_for(const std::string& how) {
  return {.backend = backend_named(how), .fullgraph = true};
}

fs::path folder_of(const ordered_json& request) { return request.at("folder").get<std::string>(); }

std::unique_ptr<Work> load_work(const ordered_json& request) {
  const auto how = request.at("how").get<std::string>(), work = request.at("work").get<std::string>();
  const auto folder = folder_of(request);
  if (how == "copy") return std::make_unique<CopyWork>(request.at("bytes").get<int64_t>());
  if (work == "train") return load_train_work(request);
  if (!request.at("adapter").is_null() && request.at("state") != "base") return load_adapter_work(request);
  if (work == "forward" || work == "backward")
    return std::make_unique<ModelWork>(folder, work == "backward", how);
  if (work == "generate") return load_decode_work(request);
  if (work == "step") return std::make_unique<StepWork>(folder, how);
  return std::make_unique<OpWork>(folder, work, request.at("inputs").get<std::vector<std::string>>(), how);
}

void make_files(const ordered_json& request) {
  const auto folder = folder_of(request);
  at::manual_seed(0);
  if (const auto file = request.at("model_file").get<std::string>(); !file.empty())
    AutoModelForCausalLM::from_pretrained(file, {.dtype = at::kFloat})->save_pretrained(folder / "model");
  else if (!request.at("config").is_null())
    AutoModelForAny::from_config(Config::from_json(request["config"].dump()))
        ->save_pretrained(folder / "model");
  NamedTensors inputs;
  for (const auto& [name, wanted] : request.at("inputs").items())
    inputs.emplace_back(name, random_tensor(wanted));
  save_safetensors(folder / "inputs.safetensors", inputs);
  if (!request.at("adapter").is_null()) make_adapters(request);
}

}  // namespace graft::cli::bench
