#include "train/subject.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "adapters/methods/arrow.h"
#include "adapters/part.h"
#include "graft/error.h"
#include "models/sources.h"
#include "nn/norm.h"
#include "nn/weighted.h"
#include "support/given.h"

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

constexpr const char* kConfig = "adapter_config.json";

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

/// What moves in training without a gradient: those of a batch normalisation that an adapter has a copy of.
bool is_statistic(const std::string& place) {
  return place.ends_with(".running_mean") || place.ends_with(".running_var") ||
         place.ends_with(".num_batches_tracked");
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

class Adapters : public Subject {
 public:
  explicit Adapters(std::shared_ptr<PeftModel> model) : peft_(given(std::move(model), "[train] the model")) {
    check_any();
  }

  void check_any() const override {
    if (!named().empty()) return;
    for (const auto& name : peft_->active_adapters())
      if (adapters::is_arrow(peft_->peft_config(name)))
        throw UsageError("[train] the Arrow router \"" + name +
                         "\" has nothing to train: it chooses among adapters by their weights. Train these, "
                         "each by itself, and make the router again");
    if (!peft_->adapters_enabled())
      throw UsageError("[train] adapters are disabled: call enable_adapters() before they are trained");
    if (const auto merged = peft_->merged_adapters(); !merged.empty())
      throw UsageError("[train] " + quoted(merged) +
                       " is merged into the weights: call unmerge_adapter() before it is trained");
    throw UsageError(
        "[train] no active adapter can be trained: add one, or load it with is_trainable, and make it "
        "active");
  }

  NamedTensors named() const override {
    const auto& active = peft_->active_adapters();
    NamedTensors all;
    for (const auto& adapter : active)
      for (const auto& [key, tensor] : peft_->trainable_tensors(adapter))
        if (tensor.requires_grad()) all.emplace_back(active.size() > 1 ? adapter + ":" + key : key, tensor);
    return all;
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
    for (const auto& [name, from] : folders(dir)) peft_->hotswap_adapter(from, name);
  }

  bool load_in_place(const fs::path& dir) override {
    const auto all = folders(dir);
    return std::all_of(all.begin(), all.end(), [this](const auto& each) {
      return !allocates(each.first) && copy_from(each.second, each.first);
    });
  }

  /// Into the tensors that are there, so that they lie in memory as in a run that was never interrupted: some
  /// products round by that. Of some the file has only what is used in the end: AdaLoRA's ranks of the
  /// moment, the embeddings that a prompt's encoder gives. Training continues with all of it, which is in
  /// unsaved().
  void load_to_resume(const fs::path& dir) override {
    if (fs::exists(dir / "config.json"))
      throw UsageError(
          "[train] " + dir.string() +
          " is of a run that trained the whole model, and this one trains an adapter: resume with "
          "the whole model (--full), or begin a new run in another folder");
    for (const auto& [name, from] : folders(dir))
      if (is_whole_in_file(name) && !copy_from(from, name)) peft_->hotswap_adapter(from, name);
  }

  NamedTensors unsaved() const override {
    NamedTensors all;
    for (const auto& item : model().named_buffers())
      if (!nn::is_wrapped_path(item.key())) all.emplace_back(item.key(), item.value());
    for (const auto& name : peft_->active_adapters()) {
      const bool whole = is_whole_in_file(name);
      for (const auto& [place, tensor] : peft_->tensors_by_place(name))
        if (!whole || is_statistic(place)) all.emplace_back(name + ":" + place, tensor);
    }
    return all;
  }

  bool wants_gradients() const override {
    const auto& active = peft_->active_adapters();
    return std::any_of(active.begin(), active.end(), [this](const auto& name) { return allocates(name); });
  }
  void after_step(int64_t step) override {
    for (const auto& name : peft_->active_adapters())
      if (allocates(name)) peft_->update_and_allocate(name, step);
  }

 private:
  /// Where save() put each adapter, which must be of the same configuration.
  std::vector<std::pair<std::string, fs::path>> folders(const fs::path& dir) const {
    const auto& active = peft_->active_adapters();
    check_same_adapters(active, dir);
    std::vector<std::pair<std::string, fs::path>> all;
    all.reserve(active.size());
    for (const auto& name : active) {
      all.emplace_back(name, active.size() == 1 || name == "default" ? dir : dir / name);
      check_same(peft_->peft_config(name), AdapterConfig::from_pretrained(all.back().second), dir);
    }
    return all;
  }

  /// False, and nothing done, where the file does not hold the tensors as they are trained.
  bool copy_from(const fs::path& dir, const std::string& name) const {
    const auto file = Checkpoint::open(dir, "adapter_model");
    const auto tensors = peft_->trainable_tensors(name);
    for (const auto& [key, tensor] : tensors)
      if (!file.contains(key) || file.tensor(key).sizes() != tensor.sizes()) return false;
    const at::NoGradGuard no_grad;
    for (const auto& [key, tensor] : tensors) tensor.copy_(file.tensor(key));
    return true;
  }

  /// A single adapter lies in the folder itself, several in folders of their names, "default" apart.
  static void check_same_adapters(const std::vector<std::string>& active, const fs::path& dir) {
    std::set<std::string> saved, mine;
    if (fs::exists(dir / kConfig)) saved.emplace("");
    for (const auto& entry : fs::directory_iterator(dir))
      if (fs::exists(entry.path() / kConfig)) saved.insert(entry.path().filename().string());
    for (const auto& name : active) mine.insert(active.size() == 1 || name == "default" ? "" : name);
    if (saved == mine) return;
    const bool one = saved.size() == 1 && saved.contains("");
    std::vector<std::string> names(saved.begin(), saved.end());
    for (auto& name : names)
      if (name.empty()) name = "default";
    throw UsageError("[train] " + dir.string() + " is of a run that trained " +
                     (one             ? "one adapter"
                      : names.empty() ? "no adapter"
                                      : "the adapters " + quoted(names)) +
                     ", and now " + quoted(active) + (active.size() == 1 ? " is active: " : " are active: ") +
                     "make those active that it trained, or begin a new run in another folder");
  }

  /// Whether the adapter's file has all that is trained, as it is trained.
  bool is_whole_in_file(const std::string& name) const {
    if (allocates(name)) return false;
    std::set<std::string> saved;
    for (const auto& [key, tensor] : peft_->state_dict(name)) saved.insert(key);
    const auto trained = peft_->trainable_tensors(name);
    return std::all_of(trained.begin(), trained.end(),
                       [&](const auto& each) { return saved.contains(each.first); });
  }

  bool allocates(const std::string& name) const { return peft_->peft_config(name).peft_type() == "ADALORA"; }

  static void check_same(const AdapterConfig& mine, const AdapterConfig& saved, const fs::path& from) {
    const auto fields = [](const AdapterConfig& config) {
      auto all = nlohmann::json::parse(config.dump());
      for (const char* free : {"inference_mode", "base_model_name_or_path", "peft_version"}) all.erase(free);
      if (config.peft_type() == "ADALORA") all.erase("rank_pattern");
      return all;
    };
    const auto now = fields(mine), before = fields(saved);
    std::string different;
    for (const auto& [name, value] : now.items())
      if (const auto was = before.value(name, nlohmann::json()); value != was)
        different +=
            (different.empty() ? "\"" : ", \"") + name + "\" is " + value.dump() + " and was " + was.dump();
    if (!different.empty() || now.size() != before.size())
      throw UsageError("[train] the adapter is configured otherwise than the one in " + from.string() +
                       ", from which the run is to be resumed: " + different);
  }

  std::shared_ptr<PeftModel> peft_;
};

class WholeModel : public Subject {
 public:
  explicit WholeModel(std::shared_ptr<PreTrainedModel> model)
      : model_(given(std::move(model), "[train] the model")) {
    check_any();
  }

  void check_any() const override {
    if (named().empty()) throw UsageError("[train] no parameter of the model requires a gradient");
  }

  NamedTensors named() const override {
    NamedTensors all;
    for (const auto& [name, tensor] : model_->unique_parameters())
      if (tensor.requires_grad()) all.emplace_back(name, tensor);
    return all;
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
  void load_to_resume(const fs::path& dir) override {
    if (!fs::exists(dir / "config.json"))
      throw UsageError(
          "[train] " + dir.string() +
          " is of a run that trained an adapter, and this one trains the whole model: resume with "
          "the adapter's configuration, or begin a new run in another folder");
    load(dir);
  }

 private:
  std::shared_ptr<PreTrainedModel> model_;
};

}  // namespace

std::vector<Trained> Subject::tensors() const {
  const auto root = module();
  return with_decay(named(), *root);
}

std::unique_ptr<Subject> train_adapters(std::shared_ptr<PeftModel> model) {
  return std::make_unique<Adapters>(std::move(model));
}
std::unique_ptr<Subject> train_all(std::shared_ptr<PreTrainedModel> model) {
  return std::make_unique<WholeModel>(std::move(model));
}

}  // namespace graft::train
