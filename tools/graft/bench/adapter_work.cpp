#include "bench/adapter_work.h"

#include <ATen/ATen.h>

#include "graft/compile_step.h"
#include "inputs.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path file_of(const ordered_json& request, int64_t i) {
  return folder_of(request) / "adapters" / std::to_string(i);
}
std::string name_of(int64_t i) { return "adapter" + std::to_string(i); }

std::shared_ptr<PeftModel> bare_model(const ordered_json& request) {
  return std::make_shared<PeftModel>(
      AutoModelForAny::from_pretrained(folder_of(request) / "model", load_options(request)));
}

/// Forward, or forward and backward into the adapter's gradients, with the adapters in one of the states.
class AdapterWork : public Work {
 public:
  explicit AdapterWork(const ordered_json& request)
      : peft_(bare_model(request)),
        inputs_(read_inputs(folder_of(request) / "inputs.safetensors", *peft_->base_model())),
        forward_(compile(peft_, options_for(request.at("how")))),
        state_(request.at("state")),
        backward_(request.at("work") == "backward"),
        compares_gradients_(request.at("gradients")) {
    for (int64_t i = 0; i < request.at("adapters").get<int64_t>(); ++i)
      peft_->load_adapter(file_of(request, i), name_of(i), {.is_trainable = backward_});
    names_ = peft_->adapter_names();
    if (state_ == "disabled") peft_->disable_adapters();
    const auto batch = static_cast<size_t>(inputs_.input_ids.size(0));
    if (state_ == "unused") rows_.adapter_names.assign(batch, "__base__");
    if (state_ == "mixed")
      for (size_t i = 0; i < batch; ++i) rows_.adapter_names.push_back(names_[i % names_.size()]);
    peft_->train(backward_);
  }

  void call() override {
    const at::AutoGradMode mode(backward_);
    out_ = {};
    if (backward_)
      for (auto& [name, tensor] : trained()) tensor.mutable_grad().reset();
    if (state_ == "switched") peft_->set_adapter(names_[calls_++ % names_.size()]);
    out_ = forward_(inputs_, rows_);
    if (backward_) out_.loss.backward();
  }

  NamedTensors outputs() const override {
    NamedTensors found{{"logits", out_.logits.detach()}};
    if (!backward_) return found;
    found.emplace_back("loss", out_.loss.detach());
    if (!compares_gradients_) return found;
    for (const auto& [name, tensor] : trained())
      found.emplace_back("grad." + name, tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
    return found;
  }

  void nudge() override {
    constexpr double kRoundings = 8 * 0x1p-24;
    const at::NoGradGuard guard;
    for (auto& parameter : peft_->base_model()->parameters())
      parameter.mul_(at::empty_like(parameter).uniform_(1 - kRoundings, 1 + kRoundings));
  }

 private:
  NamedTensors trained() const { return peft_->trainable_tensors(names_.front()); }

  std::shared_ptr<PeftModel> peft_;
  ModelInputs inputs_;
  CompiledPeftModel forward_;
  std::string state_;
  bool backward_, compares_gradients_;
  std::vector<std::string> names_;
  AdapterCall rows_;
  size_t calls_ = 0;
  ModelOutput out_;
};

/// Forward, loss, backward and AdamW on the adapter, as one program.
class AdapterStepWork : public Work {
 public:
  explicit AdapterStepWork(const ordered_json& request)
      : peft_(first_adapter_on(
            AutoModelForAny::from_pretrained(folder_of(request) / "model", load_options(request)), request)),
        inputs_(read_inputs(folder_of(request) / "inputs.safetensors", *peft_->base_model())),
        step_(compile_step(peft_, [peft = peft_](const ModelInputs& in) { return peft->forward(in).loss; },
                           AdamW{}, {.compile = options_for(request.at("how"))})) {
    peft_->train();
  }

  void call() override {
    loss_ = at::Tensor();
    loss_ = step_(inputs_);
  }
  NamedTensors outputs() const override { return {{"loss", loss_.to(at::kFloat)}}; }

 private:
  std::shared_ptr<PeftModel> peft_;
  ModelInputs inputs_;
  CompiledStep<at::Tensor(const ModelInputs&)> step_;
  at::Tensor loss_;
};

/// load_adapter() beside those that are there. A compiled model has vacant slots for all of them.
class LoadWork : public Work {
 public:
  explicit LoadWork(const ordered_json& request)
      : peft_(bare_model(request)),
        inputs_(read_inputs(folder_of(request) / "inputs.safetensors", *peft_->base_model())),
        next_(file_of(request, 0)) {
    const auto loaded = request.at("loaded").get<int64_t>(), files = request.at("adapters").get<int64_t>();
    const auto options = options_for(request.at("how"));
    if (options.backend != Backend::eager) {
      peft_->reserve(static_cast<size_t>(loaded) + 1, AdapterConfig::from_pretrained(next_));
      compiled_.emplace(compile(peft_, options));
    }
    for (int64_t i = 0; i < loaded; ++i) peft_->load_adapter(file_of(request, (i + 1) % files), name_of(i));
    peft_->eval();
  }

  void call() override {
    peft_->load_adapter(next_, kName);
    loaded_ = true;
  }
  void rewind() override {
    if (loaded_) peft_->delete_adapter(kName);
    loaded_ = false;
  }
  /// What the adapter that was loaded does, by the eager model: a program for 200 slots is not the point.
  NamedTensors outputs() const override {
    const at::NoGradGuard guard;
    const std::vector<std::string> rows(static_cast<size_t>(inputs_.input_ids.size(0)), kName);
    return {{"logits", peft_->forward(inputs_, {.adapter_names = rows}).logits}};
  }

 private:
  static constexpr const char* kName = "next";
  std::shared_ptr<PeftModel> peft_;
  ModelInputs inputs_;
  fs::path next_;
  std::optional<CompiledPeftModel> compiled_;
  bool loaded_ = false;
};

}  // namespace

std::unique_ptr<Work> load_adapter_work(const ordered_json& request) {
  if (request.at("work") == "load") return std::make_unique<LoadWork>(request);
  if (request.at("work") == "step") return std::make_unique<AdapterStepWork>(request);
  return std::make_unique<AdapterWork>(request);
}

std::shared_ptr<PeftModel> first_adapter_on(std::shared_ptr<PreTrainedModel> model,
                                            const ordered_json& request) {
  auto peft = std::make_shared<PeftModel>(std::move(model));
  peft->load_adapter(file_of(request, 0), name_of(0), {.is_trainable = true});
  return peft;
}

void make_adapters(const ordered_json& request) {
  constexpr double kNoise = 0.02;
  const at::NoGradGuard guard;
  const auto config = AdapterConfig::from_json(request.at("adapter").dump());
  for (int64_t i = 0; i < request.at("adapters").get<int64_t>(); ++i) {
    at::manual_seed(static_cast<uint64_t>(i) + 1);
    const auto peft = get_peft_model(
        AutoModelForAny::from_pretrained(folder_of(request) / "model", load_options(request)), config);
    for (auto& [name, tensor] : peft->trainable_tensors("default"))
      tensor.add_(at::randn_like(tensor), kNoise);
    peft->save_adapter(file_of(request, i), "default");
  }
}

}  // namespace graft::cli::bench
