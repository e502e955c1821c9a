// PeftModel: the public interface over its state (peft_state.h), under the lock.
#include "graft/peft.h"

#include <torch/serialize/archive.h>

#include "adapters/adapter.h"
#include "adapters/methods/adalora.h"
#include "adapters/methods/lora.h"
#include "adapters/peft_state.h"
#include "adapters/prompted_call.h"
#include "adapters/site.h"
#include "graft/error.h"
#include "io/format/atomic_file.h"
#include "support/given.h"
#include "support/log.h"
#include "support/memory.h"

namespace graft {
using adapters::Adapter;
namespace fs = std::filesystem;

namespace {

using Exclusive = std::unique_lock<FairSharedMutex>;
using Shared = std::shared_lock<FairSharedMutex>;

/// From PEFT's folder; every tensor of the file has its place.
std::unique_ptr<Adapter> read_adapter(const fs::path& dir, const std::string& name,
                                      const PreTrainedModel& model, std::optional<at::ScalarType> dtype) {
  const auto config = AdapterConfig::from_pretrained(dir);
  auto source = adapters::GivenSource::open(dir, dtype);
  auto adapter = adapters::build_adapter(name, config, model, source);
  source.finish(model, *adapter);
  return adapter;
}

/// In torch's archives.
constexpr const char* kAdapters = "adapters";

/// A layer has one place for adapters: those of two PeftModels would add up, unseen by each other.
std::shared_ptr<PreTrainedModel> without_adapters(std::shared_ptr<PreTrainedModel> model) {
  given(model, "[adapters] the model");
  for (const auto& module : model->modules())
    if (const auto layer = std::dynamic_pointer_cast<nn::WeightedLayer>(module);
        layer && std::dynamic_pointer_cast<adapters::Site>(layer->wrapper()))
      throw UsageError("[adapters] the model has adapters of another PeftModel already, on \"" +
                       layer->path() +
                       "\": load more with that one's load_adapter(), or take them off with its unload()");
  return model;
}

}  // namespace

PeftModel::PeftModel(std::shared_ptr<PreTrainedModel> model)
    : model_(register_module("base_model", without_adapters(std::move(model)))),
      state_(std::make_unique<State>(*this)) {
  state_->program->register_module("base_model", model_);
  for (auto& parameter : model_->parameters()) parameter.set_requires_grad(false);
  state_->refresh();
}

PeftModel::~PeftModel() = default;

ModelOutput PeftModel::forward(const ModelInputs& inputs, const AdapterCall& call) {
  const Shared lock(state_->guard);
  const auto& names = state_->serving(call).adapter_names;
  const auto chosen =
      names.empty() ? state_->routing->get() : state_->by_rows(names, batch_of(inputs), model_->device());
  const auto rows = state_->row_data(inputs);  // first: it checks what the prompt is given
  return state_->run(inputs, chosen, rows, state_->virtual_tokens(names, inputs.task_ids));
}

at::Tensor PeftModel::alora_offsets(const at::Tensor& input_ids, const AdapterCall& call) const {
  const Shared lock(state_->guard);
  return state_->alora_offsets(input_ids, state_->serving(call).adapter_names);
}

std::optional<int64_t> PeftModel::vocab_size(const AdapterCall& call) const {
  const Shared lock(state_->guard);
  return state_->most_tokens(state_->serving(call).adapter_names, /*out=*/false);
}

int64_t PeftModel::num_virtual_tokens(const AdapterCall& call) const {
  const Shared lock(state_->guard);
  const auto* adapter = state_->prompting(state_->serving(call).adapter_names);
  return adapter ? adapter->config.integer("num_virtual_tokens") : 0;
}

void PeftModel::add_adapter(const std::string& name, const AdapterConfig& config) {
  const Exclusive lock(state_->guard);
  state_->check_new(name);
  state_->with_layers_of(config, [&] {
    adapters::FreshSource source;
    auto adapter = adapters::build_adapter(name, config, *model_, source);
    adapter->trainable = !config.boolean("inference_mode");
    state_->add(std::move(adapter));
  });
}

void PeftModel::load_adapter(const fs::path& dir, const std::string& name,
                             const LoadAdapterOptions& options) {
  std::unique_ptr<adapters::Adapter> adapter;
  if (const auto config = AdapterConfig::from_pretrained(dir); !adapters::repeated_layers(config).empty()) {
    const Exclusive lock(state_->guard);
    state_->check_new(name);
    return state_->with_layers_of(config, [&] {
      adapter = read_adapter(dir, name, *model_, options.dtype);
      adapter->trainable = options.is_trainable;
      state_->add(std::move(adapter));
    });
  }
  {
    const Shared lock(state_->guard);  // calls continue while the file is read
    state_->check_new(name);
    adapter = read_adapter(dir, name, *model_, options.dtype);
    adapter->trainable = options.is_trainable;
  }
  const Exclusive lock(state_->guard);
  state_->check_new(name);  // another thread may have been faster
  state_->add(std::move(adapter));
}

void PeftModel::add_from_tensors(const std::string& name, const AdapterConfig& config,
                                 const NamedTensors& tensors) {
  const Exclusive lock(state_->guard);
  state_->check_new(name);
  state_->with_layers_of(config, [&] {
    adapters::GivenSource source(tensors, "\"" + name + "\"");
    auto adapter = adapters::build_adapter(name, config, *model_, source);
    source.finish(*model_, *adapter);
    state_->add(std::move(adapter));
  });
}

void PeftModel::hotswap_adapter(const fs::path& dir, const std::string& name) {
  const auto check = [&] {
    state_->get(name);
    if (state_->is_merged(name))
      throw UsageError("[adapters] \"" + name + "\" is merged: unmerge it before its weights are swapped");
  };
  std::unique_ptr<adapters::Adapter> adapter;
  {
    const Shared lock(state_->guard);  // calls continue while the file is read
    check();
    state_->check_layers_of(AdapterConfig::from_pretrained(dir));
    adapter = read_adapter(dir, name, *model_, {});
  }
  const Exclusive lock(state_->guard);
  check();  // another thread may have been faster
  adapter->trainable = state_->get(name).trainable;
  state_->swap(name, std::move(adapter));
}

void PeftModel::reserve(size_t count, const AdapterConfig& config) {
  constexpr size_t most = 10'000;
  if (count > most)
    throw UsageError("[adapters] reserve() is asked for " + std::to_string(count) +
                     " slots, and every program has all of them in it: reserve at most " +
                     std::to_string(most));
  const Exclusive lock(state_->guard);
  state_->check_layers_of(config);
  for (size_t i = 0; i < count; ++i) {
    adapters::FreshSource source;
    auto adapter = adapters::build_adapter("", config, *model_, source);
    if (adapter->parts.empty()) break;  // it needs no slot
    if (i == 0) {
      double bytes = 0;
      for (const auto& named : adapter->tensors()) bytes += static_cast<double>(named.tensor.nbytes());
      check_memory(bytes * static_cast<double>(count),
                   std::to_string(count) + " slots for such adapters take", "reserve fewer");
    }
    state_->attach(*adapter);
    state_->vacant.push_back(std::move(adapter));
  }
  state_->refresh_versions();
}

void PeftModel::save_adapter(const fs::path& dir, const std::string& name) const {
  const Shared lock(state_->guard);
  const auto& adapter = state_->get(name);
  save_checkpoint(dir, adapter.state_dict(), {{"format", "pt"}}, 50'000'000'000, "adapter_model");
  io::write_file_atomically(dir / "adapter_config.json",
                            adapters::allocated_config(adapter).with("inference_mode", "true").dump());
}

void PeftModel::save_pretrained(const fs::path& dir, const std::vector<std::string>& names) const {
  const auto saved = names.empty() ? adapter_names() : names;
  for (const auto& name : saved)
    if (const fs::path folder(name); name == "." || name == ".." || folder != folder.filename())
      throw UsageError(
          "[adapters] \"" + name +
          "\" is not a valid name of a folder: save_adapter() saves it into one of another name");
  for (const auto& name : saved) save_adapter(name == "default" ? dir : dir / name, name);
}

void PeftModel::delete_adapter(const std::string& name) {
  const Exclusive lock(state_->guard);
  state_->get(name);
  if (state_->is_merged(name))
    throw UsageError("[adapters] \"" + name + "\" is merged into the weights: unmerge it before deleting it");
  state_->remove(name);
  if (state_->active.empty() && !state_->all.empty()) {
    state_->active = {state_->all.front()->name};
    log_warning("[adapters] \"" + name + "\" was the active adapter; now it is \"" + state_->active[0] +
                "\"");
  }
  state_->refresh();
}

void PeftModel::set_adapter(const std::vector<std::string>& names) {
  const Exclusive lock(state_->guard);
  for (const auto& name : names) state_->get(name);
  state_->check_together(names);
  if (!state_->merged.empty()) {
    log_warning("[adapters] adapters are merged; they are unmerged before others are set");
    state_->unmerge();
  }
  state_->active = names;
  state_->refresh();
}

void PeftModel::disable_adapters() {
  const Exclusive lock(state_->guard);
  if (!state_->merged.empty()) state_->unmerge();
  state_->disabled = true;
  state_->refresh();
}

bool PeftModel::adapters_enabled() const {
  const Shared lock(state_->guard);
  read_state(state_->versions.names, "whether adapters are enabled");
  return !state_->disabled;
}

void PeftModel::enable_adapters() {
  const Exclusive lock(state_->guard);
  state_->disabled = false;
  state_->refresh();
}

void PeftModel::merge_adapter(const MergeOptions& options) {
  const Exclusive lock(state_->guard);
  if (state_->disabled)
    throw UsageError("[adapters] adapters are disabled, and merging would make them work: enable them first");
  state_->merge(options);
}

void PeftModel::unmerge_adapter() {
  const Exclusive lock(state_->guard);
  state_->unmerge();
}

std::shared_ptr<PreTrainedModel> PeftModel::merge_and_unload(const MergeOptions& options) {
  const Exclusive lock(state_->guard);
  state_->merge(options);
  state_->clear();
  return model_;
}

std::shared_ptr<PreTrainedModel> PeftModel::unload() {
  const Exclusive lock(state_->guard);
  state_->unmerge();
  state_->clear();
  return model_;
}

void PeftModel::update_and_allocate(const std::string& name, int64_t step) {
  const Exclusive lock(state_->guard);
  state_->get(name);
  for (const auto& adapter : state_->all)
    if (adapter->name == name) adapters::update_and_allocate(*adapter, step);
}

NamedTensors PeftModel::allocation_state(const std::string& name) const {
  const Shared lock(state_->guard);
  return adapters::allocation_state(state_->get(name));
}

void PeftModel::scale_adapter(const std::string& name, double factor) {
  const Exclusive lock(state_->guard);
  state_->get(name);
  bool any = false;
  for (const auto& adapter : state_->all) {
    if (adapter->name != name) continue;
    for (const auto& placed : adapter->parts) any |= placed.part->scale(factor);
    adapter->scale *= factor;
  }
  if (!any)
    throw UsageError("[adapters] " + state_->get(name).config.peft_type() + " has no scaling to change (\"" +
                     name + "\")");
}

std::vector<std::string> PeftModel::adapter_names() const {
  const Shared lock(state_->guard);
  std::vector<std::string> names;
  for (const auto& adapter : state_->all) names.push_back(adapter->name);
  return names;
}

std::vector<std::string> PeftModel::active_adapters() const {
  const Shared lock(state_->guard);
  read_state(state_->versions.names, "the active adapters");
  return state_->active;
}

std::vector<std::string> PeftModel::merged_adapters() const {
  const Shared lock(state_->guard);
  read_state(state_->versions.merged, "the merged adapters");
  return state_->merged;
}

AdapterConfig PeftModel::peft_config(const std::string& name) const {
  const Shared lock(state_->guard);
  return state_->chosen(name).config;
}

NamedTensors PeftModel::state_dict(const std::string& name) const {
  const Shared lock(state_->guard);
  return state_->get(name).state_dict();
}

NamedTensors PeftModel::trainable_tensors(const std::string& name) const {
  const Shared lock(state_->guard);
  NamedTensors tensors;
  for (const auto& [key, tensor, trainable] : state_->get(name).tensors())
    if (trainable) tensors.emplace_back(key, tensor);
  return tensors;
}

NamedTensors PeftModel::tensors_by_place(const std::string& name) const {
  const Shared lock(state_->guard);
  const auto& adapter = state_->get(name);
  NamedTensors all;
  const auto add = [&](const torch::nn::Module& module, const std::string& place) {
    for (const auto& item : module.named_parameters()) all.emplace_back(place + item.key(), item.value());
    for (const auto& item : module.named_buffers()) all.emplace_back(place + item.key(), item.value());
  };
  if (adapter.shared) add(*adapter.shared, "");
  for (const auto& placed : adapter.parts) add(*placed.part, placed.target.path + "." + placed.type + ".");
  for (const auto& [key, tensor] : adapters::allocation_state(adapter))
    all.emplace_back("allocation." + key, tensor);
  std::erase_if(all, [](const auto& each) { return !each.second.defined(); });
  return all;
}

void PeftModel::save(torch::serialize::OutputArchive& archive) const {
  Module::save(archive);  // the base alone: what adapters have in the tree says that it is not to be saved
  c10::Dict<std::string, at::Tensor> all;
  for (const auto& name : adapter_names())
    for (const auto& [place, tensor] : tensors_by_place(name))
      all.insert(name + ":" + place, tensor.detach());
  archive.write(kAdapters, c10::IValue(all));
}

void PeftModel::load(torch::serialize::InputArchive& archive) {
  c10::IValue saved;
  if (!archive.try_read(kAdapters, saved) || !saved.isGenericDict())
    throw FormatError("[adapters] the archive is not of a PeftModel: it has no \"adapters\"");
  const auto tensors = c10::impl::toTypedDict<std::string, at::Tensor>(saved.toGenericDict());
  NamedTensors mine;
  for (const auto& name : adapter_names())
    for (const auto& [place, tensor] : tensors_by_place(name)) mine.emplace_back(name + ":" + place, tensor);
  bool fits = tensors.size() == mine.size();
  for (const auto& [key, tensor] : mine)
    fits = fits && tensors.contains(key) && tensors.at(key).sizes() == tensor.sizes();
  if (!fits)
    throw FormatError(
        "[adapters] the archive has other adapters than this model: load or make those that were there when "
        "it was saved, under the same names");
  Module::load(archive);
  const at::NoGradGuard no_grad;
  for (const auto& [key, tensor] : mine) tensor.copy_(tensors.at(key));
}

TrainableCount PeftModel::get_nb_trainable_parameters() const {
  const Shared lock(state_->guard);
  TrainableCount count{0, 0};
  const auto add = [&](const at::Tensor& tensor) {
    count.all += tensor.numel();
    if (tensor.requires_grad()) count.trainable += tensor.numel();
  };
  for (const auto& [path, parameter] : model_->unique_parameters()) add(parameter);
  // What is not trained in an adapter (VeRA's projections, SHiRA's places) is no parameter in PEFT either.
  for (const auto& adapter : state_->all)
    for (const auto& named : adapter->tensors())
      if (named.trainable) add(named.tensor);
  return count;
}

std::shared_ptr<PeftModel> get_peft_model(std::shared_ptr<PreTrainedModel> model, const AdapterConfig& config,
                                          const std::string& adapter_name) {
  auto peft = std::make_shared<PeftModel>(std::move(model));
  peft->add_adapter(adapter_name, config);
  return peft;
}

}  // namespace graft
