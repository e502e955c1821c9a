#include "train/subject.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "adapters/part.h"
#include "graft/error.h"
#include "models/sources.h"
#include "nn/norm.h"
#include "nn/weighted.h"

namespace graft::train {
namespace fs = std::filesystem;

bool decays_by_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* word : {"bias", "layernorm", "rmsnorm"})
    if (lower.find(word) != std::string::npos) return false;
  // A whole part of the path that is "norm", or ends with "_norm".
  lower += '.';
  for (size_t at = lower.find("norm."); at != std::string::npos; at = lower.find("norm.", at + 1))
    if (at == 0 || lower[at - 1] == '.' || lower[at - 1] == '_') return false;
  return true;
}

namespace {

/// What belongs to LayerNorms, and to an adapter's copies of such: by their addresses.
std::set<const c10::TensorImpl*> layer_norm_tensors(const torch::nn::Module& root) {
  std::set<const c10::TensorImpl*> found;
  const auto add_all = [&](const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters(/*recurse=*/false))
      found.insert(parameter.unsafeGetTensorImpl());
  };
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (dynamic_cast<const nn::LayerNorm*>(module.get())) add_all(*module);
    if (const auto* part = dynamic_cast<const adapters::Part*>(module.get()))
      if (dynamic_cast<const nn::LayerNorm*>(&part->layer())) add_all(*part);
  }
  return found;
}

std::vector<Trained> with_decay(const NamedTensors& tensors, const torch::nn::Module& root) {
  const auto norms = layer_norm_tensors(root);
  std::vector<Trained> list;
  list.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors)
    list.push_back({name, tensor, decays_by_name(name) && !norms.contains(tensor.unsafeGetTensorImpl())});
  return list;
}

class Adapters : public Subject {
 public:
  explicit Adapters(std::shared_ptr<PeftModel> model) : peft_(std::move(model)) {
    if (tensors().empty())
      throw UsageError(
          "[train] no active adapter can be trained: add one, or load it with is_trainable, and make it "
          "active");
  }

  std::vector<Trained> tensors() const override {
    const auto& active = peft_->active_adapters();
    NamedTensors all;
    for (const auto& adapter : active)
      for (const auto& [key, tensor] : peft_->trainable_tensors(adapter))
        if (tensor.requires_grad()) all.emplace_back(active.size() > 1 ? adapter + ":" + key : key, tensor);
    return with_decay(all, *peft_);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return peft_; }
  PreTrainedModel& model() const override { return *peft_->base_model(); }
  std::function<ModelOutput(const ModelInputs&)> forward() const override {
    return [peft = peft_.get()](const ModelInputs& inputs) { return peft->forward(inputs); };
  }

  /// A single adapter lies in the folder itself, whatever its name.
  void save(const fs::path& dir) const override {
    const auto& active = peft_->active_adapters();
    if (active.size() == 1)
      peft_->save_adapter(dir, active[0]);
    else
      peft_->save_pretrained(dir, active);
  }

  void load(const fs::path& dir) override {
    const auto active = peft_->active_adapters();
    for (const auto& name : active) {
      const auto from = active.size() == 1 || name == "default" ? dir : dir / name;
      check_same(peft_->peft_config(name), AdapterConfig::from_pretrained(from), from);
      peft_->hotswap_adapter(from, name);
    }
  }

  NamedTensors unsaved() const override {
    NamedTensors buffers;
    for (const auto& item : model().named_buffers())
      if (!nn::is_wrapped_path(item.key())) buffers.emplace_back(item.key(), item.value());
    return buffers;
  }

 private:
  static void check_same(const AdapterConfig& mine, const AdapterConfig& saved, const fs::path& from) {
    const auto comparable = [](const AdapterConfig& config) {
      return config.with("inference_mode", "true").with("base_model_name_or_path", "null").dump();
    };
    if (comparable(mine) != comparable(saved))
      throw UsageError("[train] the adapter is configured otherwise than the one in " + from.string() +
                       ", from which the run is to be resumed");
  }

  std::shared_ptr<PeftModel> peft_;
};

class WholeModel : public Subject {
 public:
  explicit WholeModel(std::shared_ptr<PreTrainedModel> model) : model_(std::move(model)) {
    if (tensors().empty()) throw UsageError("[train] no parameter of the model requires a gradient");
  }

  std::vector<Trained> tensors() const override {
    NamedTensors all;
    for (const auto& [name, tensor] : model_->unique_parameters())
      if (tensor.requires_grad()) all.emplace_back(name, tensor);
    return with_decay(all, *model_);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return model_; }
  PreTrainedModel& model() const override { return *model_; }
  std::function<ModelOutput(const ModelInputs&)> forward() const override {
    return [model = model_.get()](const ModelInputs& inputs) { return model->forward(inputs); };
  }

  void save(const fs::path& dir) const override { model_->save_pretrained(dir); }

  void load(const fs::path& dir) override {
    const auto checkpoint = Checkpoint::open(dir);
    const auto& architecture = find_architecture(model_->architecture());
    auto tensors = model_->unique_parameters();
    for (const auto& item : model_->named_buffers()) tensors.emplace_back(item.key(), item.value());
    const at::NoGradGuard no_grad;
    for (auto& [path, tensor] : tensors) tensor.copy_(tensor_at(architecture, checkpoint, path));
  }

 private:
  std::shared_ptr<PreTrainedModel> model_;
};

}  // namespace

std::unique_ptr<Subject> train_adapters(std::shared_ptr<PeftModel> model) {
  return std::make_unique<Adapters>(std::move(model));
}
std::unique_ptr<Subject> train_all(std::shared_ptr<PreTrainedModel> model) {
  return std::make_unique<WholeModel>(std::move(model));
}

}  // namespace graft::train
