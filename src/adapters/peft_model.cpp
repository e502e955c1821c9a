// PeftModel: which adapters there are and which of them work.
#include "graft/peft.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "adapters/adapter.h"
#include "adapters/methods/adalora.h"
#include "adapters/peft_state.h"
#include "adapters/prompted_call.h"
#include "graft/error.h"
#include "io/format/atomic_file.h"
#include "support/log.h"

namespace graft {
using adapters::Adapter;
using adapters::Gate;
using adapters::Routing;
using adapters::Site;
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
  source.finish(model);
  return adapter;
}

/// Where what an adapter's parts share stands in the module tree.
std::string shared_name(const Adapter& adapter) { return "@shared" + std::to_string(adapter.number); }

}  // namespace

int64_t batch_of(const ModelInputs& inputs) {
  for (const auto& input :
       {inputs.input_ids, inputs.inputs_embeds, inputs.pixel_values, inputs.decoder_input_ids})
    if (input.defined()) return input.size(0);
  return 0;
}

const Adapter* PeftModel::State::find(const std::string& name) const {
  for (const auto& adapter : all)
    if (adapter->name == name) return adapter.get();
  return nullptr;
}

const Adapter& PeftModel::State::get(const std::string& name) const {
  if (const auto* found = find(name)) return *found;
  std::string known;
  for (const auto& adapter : all) known += (known.empty() ? "\"" : ", \"") + adapter->name + "\"";
  throw UsageError("[adapters] there is no adapter \"" + name + "\"; " +
                   (known.empty() ? "none is loaded" : "loaded: " + known));
}

const Adapter& PeftModel::State::chosen(const std::string& name) const {
  const auto& adapter = get(name);
  read_state(adapter.place, "an adapter that a call names");
  return adapter;
}

void PeftModel::State::refresh() {
  auto routing_now = std::make_shared<Routing>(routing.get());
  std::vector<size_t> working;
  for (const auto& adapter : all) {
    // What is merged works as a part of the weights: nothing is computed with its tensors, and nothing
    // trains them.
    const bool works = !disabled && !is_merged(adapter->name) &&
                       std::find(active.begin(), active.end(), adapter->name) != active.end();
    if (works && adapter->slot) {
      routing_now->set(*adapter->slot, Gate::all());
      working.push_back(*adapter->slot);
    }
    // Who rested and goes on resting is left alone: loading the two hundredth adapter must not go through all
    // the others' tensors.
    if (!works && adapter->rests) continue;
    for (auto& [key, tensor, trainable] : adapter->tensors()) {
      will_switch(tensor.unsafeGetTensorImpl());
      tensor.set_requires_grad(works && adapter->trainable && trainable);
    }
    adapter->rests = !works;
  }
  std::sort(working.begin(), working.end());
  routing->set(routing_now, working);
  refresh_versions();
}

void PeftModel::State::refresh_versions() {
  const auto listed = [](const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += std::to_string(name.size()) + ":" + name;
    return text;
  };
  versions.names->becomes(listed(active) + (disabled ? "|disabled" : "|"));
  versions.merged->becomes(listed(merged));
  const auto* prompt = prompting({});
  versions.prompt->becomes(prompt ? std::to_string(prompt->number) : "");
  std::string penalties;
  for (const auto& adapter : all)
    if (adapter->slot && adapter->trainable && adapter->shared && adapter->shared->has_penalty())
      penalties += std::to_string(*adapter->slot) + " ";
  versions.penalties->becomes(penalties);
}

void PeftModel::State::check_together(const std::vector<std::string>& names) const {
  const std::string* prompt = nullptr;
  for (const auto& name : names) {
    if (!adapters::as_prompt(get(name).shared)) continue;
    if (prompt)
      throw UsageError("[adapters] \"" + *prompt + "\" and \"" + name +
                       "\" both put tokens before the input: only one of them can be active");
    prompt = &name;
  }
  std::multimap<std::string, std::pair<std::string, const adapters::Part*>> before;
  for (const auto& name : names) {
    for (const auto& placed : get(name).parts)
      for (auto [at, end] = before.equal_range(placed.target.path); at != end; ++at)
        if (const auto& [other, part] = at->second; placed.part->excludes(*part))
          throw UsageError("[adapters] \"" + other + "\" and \"" + name + "\" both bring their own \"" +
                           placed.target.path + "\": only one of them can be active");
    for (const auto& placed : get(name).parts)
      before.emplace(placed.target.path, std::pair(name, placed.part.get()));
  }
}

void PeftModel::State::check_new(const std::string& name) const {
  if (name.empty() || name == "__base__")
    throw UsageError("[adapters] \"" + name + "\" is no name for an adapter: " +
                     (name.empty() ? "it is empty" : "it stands for the base model"));
  if (find(name)) throw UsageError("[adapters] there is an adapter \"" + name + "\" already");
}

void PeftModel::State::add(std::unique_ptr<Adapter> adapter) {
  const auto home = std::find_if(vacant.begin(), vacant.end(),
                                 [&](const auto& each) { return adapters::fits(*adapter, *each); });
  if (home != vacant.end()) {
    adapters::move_into(*adapter, **home);
    vacant.erase(home);
  } else {
    if (compiled && !adapter->parts.empty())
      log_warning("[adapters] \"" + adapter->name +
                  "\" takes a new slot, so the model is compiled once more; reserve() makes room beforehand");
    attach(*adapter);
  }
  if (active.empty()) active = {adapter->name};
  all.push_back(std::move(adapter));
  refresh();
}

void PeftModel::State::attach(Adapter& adapter) {
  adapter.number = next_number++;
  if (!adapter.parts.empty()) adapter.slot = next_slot++;
  for (const auto& placed : adapter.parts) {
    auto site = std::dynamic_pointer_cast<Site>(placed.target.layer->wrapper());
    if (!site) {
      site = std::make_shared<Site>(routing);
      placed.target.layer->wrap(site);
    }
    site->add(*adapter.slot, placed.type, placed.part);
  }
  if (!adapter.shared) return;
  owner.register_module(shared_name(adapter), adapter.shared);
  if (!adapters::as_prompt(adapter.shared)) program->register_module(shared_name(adapter), adapter.shared);
}

void PeftModel::State::drop_shared(const Adapter& adapter) {
  if (!adapter.shared) return;
  owner.unregister_module(shared_name(adapter));
  if (!adapters::as_prompt(adapter.shared)) program->unregister_module(shared_name(adapter));
}

void PeftModel::State::remove(const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each->name == name; });
  std::erase(active, name);
  (*at)->place->changed();
  // What lies idle in its slot was made by reserve(), and waits for the next.
  if ((compiled || !(*at)->idle.empty()) && (*at)->slot) {
    vacant.push_back(std::move(*at));
    vacant.back()->name.clear();
  } else {
    const auto& adapter = **at;
    for (const auto& placed : adapter.parts) {
      const auto site = std::dynamic_pointer_cast<Site>(placed.target.layer->wrapper());
      if (!site) continue;  // it had another part on this layer, with which the site went
      site->remove(*adapter.slot);
      if (site->empty()) placed.target.layer->wrap(nullptr);
    }
    drop_shared(adapter);
  }
  all.erase(at);
}

void PeftModel::State::swap(const std::string& name, std::unique_ptr<Adapter> with) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each->name == name; });
  if (adapters::fits(*with, **at)) {
    adapters::move_into(*with, **at);
    with->place = (*at)->place;
    *at = std::move(with);
    return refresh();
  }
  const auto keep_active = active;
  const auto place = at - all.begin();
  remove(name);
  add(std::move(with));
  std::rotate(all.begin() + place, all.end() - 1, all.end());
  active = keep_active;
  refresh();
}

bool PeftModel::State::is_merged(const std::string& name) const {
  return std::find(merged.begin(), merged.end(), name) != merged.end();
}

void PeftModel::State::merge(const MergeOptions& options) {
  const auto names = options.adapter_names.empty() ? active : options.adapter_names;
  check_together(names);
  auto wanted = merged;
  for (const auto& name : names) {
    if (adapters::as_prompt(get(name).shared))
      throw UsageError("[adapters] \"" + name + "\" is " + get(name).config.peft_type() +
                       ", which lies in no weight and cannot be merged: keep it as an adapter");
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end())
      wanted.push_back(name);
    else
      log_warning("[adapters] \"" + name + "\" is merged already");
  }
  std::vector<size_t> slots;
  slots.reserve(wanted.size());
  for (const auto& name : wanted) slots.push_back(*get(name).slot);
  try {
    for (const auto& [layer, site] : sites()) site->merge(*layer, slots, options.safe_merge);
  } catch (...) {
    // Into the layers that came before the one that failed, only what was merged already goes back.
    slots.resize(merged.size());
    for (const auto& [layer, site] : sites())
      slots.empty() ? site->unmerge(*layer) : site->merge(*layer, slots, /*check_finite=*/false);
    throw;
  }
  merged = wanted;
  refresh();
}

void PeftModel::State::unmerge() {
  for (const auto& [layer, site] : sites()) site->unmerge(*layer);
  merged.clear();
  refresh();
}

void PeftModel::State::clear() {
  for (const auto& [layer, site] : sites()) layer->wrap(nullptr);
  for (const auto& adapter : all) adapter->place->changed();
  for (const auto* list : {&all, &vacant})
    for (const auto& adapter : *list) drop_shared(*adapter);
  all.clear();
  vacant.clear();
  active.clear();
  merged.clear();
  refresh();
}

std::vector<std::pair<std::shared_ptr<nn::WeightedLayer>, std::shared_ptr<Site>>> PeftModel::State::sites()
    const {
  std::vector<std::pair<std::shared_ptr<nn::WeightedLayer>, std::shared_ptr<Site>>> found;
  std::set<const Site*> seen;
  for (const auto* list : {&all, &vacant})
    for (const auto& adapter : *list)
      for (const auto* parts : {&adapter->parts, &adapter->idle})
        for (const auto& placed : *parts) {
          const auto site = std::dynamic_pointer_cast<Site>(placed.target.layer->wrapper());
          if (seen.insert(site.get()).second) found.emplace_back(placed.target.layer, site);
        }
  return found;
}

void PeftModel::State::check_rows(const std::vector<std::string>& names, int64_t batch) const {
  if (static_cast<int64_t>(names.size()) != batch)
    throw UsageError("[adapters] adapter_names has " + std::to_string(names.size()) +
                     " names for a batch of " + std::to_string(batch) + " rows");
  read_state(versions.merged, "the merged adapters");
  if (!merged.empty())
    throw UsageError("[adapters] adapters cannot be chosen by row while some are merged: unmerge them first");
  const bool one =
      std::all_of(names.begin(), names.end(), [&](const auto& name) { return name == names.front(); });
  for (const auto& name : names)
    if (!one && name != "__base__" && adapters::as_prompt(get(name).shared))
      throw UsageError(
          "[adapters] \"" + name +
          "\" puts tokens before the input, which makes rows longer: in one batch it serves every "
          "row or none. Split the batch by adapter");
}

const Adapter* PeftModel::State::prompting(const std::vector<std::string>& names) const {
  if (names.empty()) read_state(versions.prompt, "the prompt at work");
  // By row they are all the same, or none of them is a prompt: check_rows().
  const auto working = names.empty() ? (disabled ? std::vector<std::string>() : active)
                                     : std::vector<std::string>{names.front()};
  for (const auto& name : working)
    if (name != "__base__")
      if (const auto& adapter = names.empty() ? get(name) : chosen(name); adapters::as_prompt(adapter.shared))
        return &adapter;
  return nullptr;
}

VirtualTokens PeftModel::State::virtual_tokens(const std::vector<std::string>& names) const {
  const auto* adapter = prompting(names);
  return adapter ? adapters::as_prompt(adapter->shared)->virtual_tokens() : VirtualTokens();
}

std::shared_ptr<const Routing> PeftModel::State::by_rows(const std::vector<std::string>& names, int64_t batch,
                                                         const at::Device& device) const {
  check_rows(names, batch);
  std::map<std::string, std::vector<int64_t>> rows;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != "__base__") rows[names[i]].push_back(static_cast<int64_t>(i));
  auto by = std::make_shared<Routing>(routing.get());
  for (const auto& [name, numbers] : rows) {
    const auto slot = chosen(name).slot;
    if (!slot) continue;
    const bool everywhere = static_cast<int64_t>(numbers.size()) == batch;
    by->set(*slot, everywhere ? Gate::all() : Gate::rows(at::tensor(numbers, at::kLong).to(device), batch));
  }
  return by;
}

void PeftModel::State::add_penalties(ModelOutput& out, const Routing& by) const {
  if (!out.loss.defined()) return;
  read_state(versions.penalties, "the adapters that add to the loss");
  for (const auto& adapter : all) {
    const auto* gate = adapter->slot ? by.gate(*adapter->slot) : nullptr;
    if (!gate || !adapter->trainable || !adapter->shared) continue;
    if (const auto penalty = adapter->shared->penalty(); penalty.defined())
      out.loss = gate->if_any(out.loss + penalty, out.loss);
  }
}

PeftModel::PeftModel(std::shared_ptr<PreTrainedModel> model)
    : model_(register_module("base_model", std::move(model))), state_(std::make_unique<State>(*this)) {
  state_->program->register_module("base_model", model_);
  for (auto& parameter : model_->parameters()) parameter.set_requires_grad(false);
  state_->refresh();
}

PeftModel::~PeftModel() = default;

ModelOutput PeftModel::forward(const ModelInputs& inputs, const AdapterCall& call) {
  const Shared lock(state_->guard);
  const auto routing = call.adapter_names.empty()
                           ? state_->routing->get()
                           : state_->by_rows(call.adapter_names, batch_of(inputs), model_->device());
  const nn::WithCallContext context(routing);
  auto out = model_->forward(
      adapters::with_virtual_tokens(state_->virtual_tokens(call.adapter_names), inputs, *model_));
  state_->add_penalties(out, *routing);
  return out;
}

int64_t PeftModel::num_virtual_tokens(const AdapterCall& call) const {
  const Shared lock(state_->guard);
  const auto* adapter = state_->prompting(call.adapter_names);
  return adapter ? adapter->config.integer("num_virtual_tokens") : 0;
}

void PeftModel::add_adapter(const std::string& name, const AdapterConfig& config) {
  const Exclusive lock(state_->guard);
  state_->check_new(name);
  adapters::FreshSource source;
  auto adapter = adapters::build_adapter(name, config, *model_, source);
  adapter->trainable = !config.boolean("inference_mode");
  state_->add(std::move(adapter));
}

void PeftModel::load_adapter(const fs::path& dir, const std::string& name,
                             const LoadAdapterOptions& options) {
  std::unique_ptr<adapters::Adapter> adapter;
  {
    const Shared lock(state_->guard);  // calls go on while the file is read
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
  adapters::GivenSource source(tensors, "\"" + name + "\"");
  auto adapter = adapters::build_adapter(name, config, *model_, source);
  source.finish(*model_);
  state_->add(std::move(adapter));
}

void PeftModel::hotswap_adapter(const fs::path& dir, const std::string& name) {
  const auto check = [&] {
    state_->get(name);
    if (state_->is_merged(name))
      throw UsageError("[adapters] \"" + name + "\" is merged: unmerge it before its weights are swapped");
  };
  std::unique_ptr<adapters::Adapter> adapter;
  {
    const Shared lock(state_->guard);  // calls go on while the file is read
    check();
    adapter = read_adapter(dir, name, *model_, {});
  }
  const Exclusive lock(state_->guard);
  check();  // another thread may have been faster
  adapter->trainable = state_->get(name).trainable;
  state_->swap(name, std::move(adapter));
}

void PeftModel::reserve(size_t count, const AdapterConfig& config) {
  const Exclusive lock(state_->guard);
  for (size_t i = 0; i < count; ++i) {
    adapters::FreshSource source;
    auto adapter = adapters::build_adapter("", config, *model_, source);
    if (adapter->parts.empty()) continue;  // it needs no slot
    state_->attach(*adapter);
    state_->vacant.push_back(std::move(adapter));
  }
}

void PeftModel::save_adapter(const fs::path& dir, const std::string& name) const {
  const Shared lock(state_->guard);
  const auto& adapter = state_->get(name);
  fs::create_directories(dir);
  save_checkpoint(dir, adapter.state_dict(), {{"format", "pt"}}, 50'000'000'000, "adapter_model");
  io::write_file_atomically(dir / "adapter_config.json",
                            adapters::allocated_config(adapter).with("inference_mode", "true").dump());
}

void PeftModel::save_pretrained(const fs::path& dir, const std::vector<std::string>& names) const {
  const auto saved = names.empty() ? adapter_names() : names;
  for (const auto& name : saved)
    if (const fs::path folder(name); name == "." || name == ".." || folder != folder.filename())
      throw UsageError("[adapters] \"" + name +
                       "\" is no name of a folder: save_adapter() saves it into one of another name");
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

void PeftModel::enable_adapters() {
  const Exclusive lock(state_->guard);
  state_->disabled = false;
  state_->refresh();
}

void PeftModel::merge_adapter(const MergeOptions& options) {
  const Exclusive lock(state_->guard);
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
