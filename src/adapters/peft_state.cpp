// What a PeftModel holds, and what changes it: adapters in their slots, on their layers, at work or merged.
#include "adapters/peft_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "adapters/method.h"
#include "adapters/methods/lora.h"
#include "adapters/mixture.h"
#include "adapters/prompt_config.h"
#include "adapters/prompted_call.h"
#include "graft/error.h"
#include "models/repeated_layers.h"
#include "nn/beside_cache.h"
#include "nn/row_cache.h"
#include "support/log.h"

namespace graft {
using adapters::Adapter;
using adapters::Gate;
using adapters::Routing;
using adapters::Site;

namespace {

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

std::vector<const Adapter*> PeftModel::State::by_slot(bool also_vacant) const {
  std::vector<const Adapter*> found;
  found.reserve(all.size() + vacant.size());
  for (const auto* list : {&all, &vacant})
    for (const auto& adapter : *list)
      if (adapter->slot && (also_vacant || list == &all)) found.push_back(adapter.get());
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return *a->slot < *b->slot; });
  return found;
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
    // Who keeps resting is left alone: loading the 200th adapter must not go through all others' tensors.
    if (!works && adapter->rests) continue;
    for (auto& [key, tensor, trainable] : adapter->tensors()) {
      will_switch(tensor.unsafeGetTensorImpl());
      tensor.set_requires_grad(works && adapter->trainable && trainable);
    }
    adapter->rests = !works;
  }
  arrange();
  std::sort(working.begin(), working.end());
  routing->set(routing_now, working);
  refresh_versions();
}

void PeftModel::State::arrange() {
  std::vector<const Adapter*> working;
  std::vector<size_t> slots;
  for (const auto& name : active)
    if (const auto* adapter = find(name); adapter && adapter->slot) {
      working.push_back(adapter);
      slots.push_back(*adapter->slot);
    }
  if (slots.size() < 2) return;
  std::set<Site*> sites;
  for (const auto* adapter : working)
    for (const auto& placed : adapter->parts)
      if (const auto site = std::dynamic_pointer_cast<Site>(placed.target.layer->wrapper()))
        sites.insert(site.get());
  for (auto* site : sites) site->arrange(slots);
}

void PeftModel::State::refresh_versions() {
  const auto listed = [](const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += std::to_string(name.size()) + ":" + name;
    return text;
  };
  versions.names->becomes(listed(active) + (disabled ? "|disabled" : "|"));
  versions.merged->becomes(listed(merged));
  versions.disabled->becomes(disabled ? "disabled" : "");
  const auto* prompt = prompting({});
  versions.prompt->becomes(prompt ? std::to_string(prompt->number) : "");
  std::string penalties;
  for (const auto* adapter : by_slot(/*also_vacant=*/false))
    if (adapter->trainable && adapter->shared && adapter->shared->has_penalty())
      penalties += std::to_string(*adapter->slot) + " ";
  versions.penalties->becomes(penalties);
  std::string mixtures;
  for (const auto* adapter : by_slot(/*also_vacant=*/true))
    if (const auto* mixture = adapters::as_mixture(adapter->shared))
      mixtures += std::to_string(*adapter->slot) + ":" + std::to_string(mixture->first_share()) + " ";
  versions.mixtures->becomes(mixtures);
  invocations.clear();
  std::string tokens;
  for (const auto* adapter : by_slot(/*also_vacant=*/true)) {
    if (adapter->invocation.empty()) continue;
    invocations.push_back({*adapter->slot, adapter->invocation});
    tokens += std::to_string(*adapter->slot) + ":";
    for (const auto token : adapter->invocation) tokens += std::to_string(token) + " ";
  }
  versions.invocations->becomes(tokens);
}

void PeftModel::State::check_together(const std::vector<std::string>& names) const {
  std::set<std::string_view> seen;
  for (const auto& name : names)
    if (!seen.insert(name).second)
      throw UsageError("[adapters] \"" + name +
                       "\" is named twice: name it once, and scale_adapter() makes it stronger");
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
    throw UsageError("[adapters] \"" + name + "\" is not a valid name for an adapter: " +
                     (name.empty() ? "it is empty" : "it stands for the base model"));
  if (find(name)) throw UsageError("[adapters] there is an adapter \"" + name + "\" already");
}

void PeftModel::State::put_base(const std::shared_ptr<PreTrainedModel>& model) {
  owner.model_ = owner.replace_module("base_model", model);
  program->replace_module("base_model", model);
}

void PeftModel::State::check_layers_of(const AdapterConfig& config) const {
  if (adapters::repeated_layers(config).empty() || config.text("layer_replication") == repeated) return;
  throw ConfigError(
      "[adapters] \"layer_replication\" " + config.text("layer_replication") +
      " changes the model's blocks, and other adapters or a compiled program go with those that are "
      "there: such an adapter must come first");
}

void PeftModel::State::with_layers_of(const AdapterConfig& config, const std::function<void()>& use) {
  const auto ranges = adapters::repeated_layers(config);
  if (ranges.empty() || config.text("layer_replication") == repeated) return use();
  if (!repeated.empty() || !all.empty() || !vacant.empty() || compiled) check_layers_of(config);
  const auto before = owner.model_;
  put_base(with_repeated_layers(*before, ranges));
  repeated = config.text("layer_replication");
  try {
    use();
  } catch (...) {
    repeated.clear();
    put_base(before);
    throw;
  }
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
  if (!repeated.empty())
    throw UsageError(
        "[adapters] blocks that \"layer_replication\" repeats share their weights, and such an adapter "
        "cannot be merged into "
        "them: keep it as an adapter");
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

const AdapterCall& PeftModel::State::serving(const AdapterCall& call) const {
  if (call.adapter_names.empty()) return call;
  read_state(versions.disabled, "whether adapters are enabled");
  if (!disabled) return call;
  for (const auto& name : call.adapter_names)
    if (name != "__base__") get(name);
  static const AdapterCall base;
  return base;
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

VirtualTokens PeftModel::State::virtual_tokens(const std::vector<std::string>& names,
                                               const at::Tensor& task_ids) const {
  const auto* adapter = prompting(names);
  return adapter ? adapters::as_prompt(adapter->shared)->virtual_tokens(task_ids) : VirtualTokens();
}

RowData PeftModel::State::row_data(const ModelInputs& inputs) const {
  read_state(versions.invocations, "aLoRA's invocation tokens");
  const auto asks = [&](auto taken) {
    return std::any_of(all.begin(), all.end(), [&](const auto& adapter) { return taken(adapter->config); });
  };
  const auto method_of = [](const AdapterConfig& config) -> const adapters::Method& {
    return adapters::find_method(config.peft_type());
  };
  const auto refuse = [](const std::string& name) {
    throw UsageError("[adapters] there are " + name + ", and no adapter asks for them");
  };
  if (inputs.task_ids.defined() && !asks([&](const auto& c) { return method_of(c).takes_tasks; }))
    refuse("task_ids");
  if (inputs.input_type_mask.defined() && !asks([](const auto& c) { return c.peft_type() == "CPT"; }))
    refuse("input_type_mask");
  if (inputs.alora_offsets.defined() && invocations.empty()) refuse("alora_offsets");
  return adapters::row_data(inputs, invocations, next_slot);
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

std::shared_ptr<const Routing> PeftModel::State::with_shares(const std::shared_ptr<const Routing>& by,
                                                             const ModelInputs& inputs,
                                                             const VirtualTokens& prompt) const {
  read_state(versions.mixtures, "the adapters that choose among experts");
  std::shared_ptr<Routing> with;
  at::Tensor of_base;
  // The last hidden state of a first call, which has keys and values of its own in the cache: the how manieth
  // pass over the tokens it is there.
  const auto first_call = [&](const std::shared_ptr<const Routing>& first, size_t pass) {
    const at::NoGradGuard no_grad;
    const nn::WithCallContext context(first);
    auto given = adapters::without_row_data(inputs);
    if (given.past_key_values) {
      const auto layers = adapters::model_size(*owner.model_, "num_layers");
      given.past_key_values =
          std::make_shared<nn::BesideCache>(given.past_key_values, static_cast<int64_t>(pass) * layers);
    }
    return owner.model_->last_hidden_state(given);
  };
  const auto& tokens = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
  for (const auto* adapter : by_slot(/*also_vacant=*/true)) {
    const auto* mixture = adapters::as_mixture(adapter->shared);
    if (!mixture || !by->gate(*adapter->slot)) continue;
    if (prompt.any())
      throw UsageError("[xlora] X-LoRA does not go with virtual tokens: use the prompt without it");
    at::Tensor hidden;
    if (mixture->first_share() != 0) {
      const auto alone = std::make_shared<Routing>(routing.get());
      alone->set(*adapter->slot, *by->gate(*adapter->slot));
      alone->tell_shares(*adapter->slot, mixture->first_shares(tokens.size(0), tokens.size(1)));
      hidden = first_call(alone, 2 + *adapter->slot);
    } else {
      if (!of_base.defined()) of_base = first_call(std::make_shared<Routing>(routing.get()), 1);
      hidden = of_base;
    }
    if (!with) with = std::make_shared<Routing>(*by);
    with->tell_shares(*adapter->slot, mixture->shares(hidden));
  }
  if (with) return with;
  return by;
}

ModelOutput PeftModel::State::run(const ModelInputs& inputs, const std::shared_ptr<const Routing>& by,
                                  const RowData& rows, const VirtualTokens& prompt) const {
  auto routing = by;
  if (rows.last.defined() || rows.task_ids.defined()) routing = routing->told(rows);
  // Rows at positions of their own are different requests, which must not show in each other.
  if (dynamic_cast<const nn::RowCache*>(inputs.past_key_values.get())) routing = routing->apart();
  const nn::WithCallContext context(with_shares(routing, inputs, prompt));
  auto& model = *owner.model_;
  auto out = model.forward(adapters::with_virtual_tokens(prompt, adapters::without_row_data(inputs), model));
  adapters::put_loss(prompt, inputs, out);
  add_penalties(out, *by);
  return out;
}

at::Tensor PeftModel::State::alora_offsets(const at::Tensor& input_ids,
                                           const std::vector<std::string>& names) const {
  const auto of = [&](const std::vector<std::string>& adapters) {
    at::Tensor found;
    const Adapter* first = nullptr;
    for (const auto& name : adapters) {
      if (name == "__base__" || get(name).invocation.empty()) continue;
      const auto& adapter = get(name);
      if (first && first->invocation != adapter.invocation)
        throw UsageError("[adapters] \"" + first->name + "\" and \"" + name +
                         "\" have different invocation tokens: generate with one of them at a time");
      first = &adapter;
    }
    return first ? adapters::tokens_since(input_ids, first->invocation) : found;
  };
  if (names.empty()) return disabled ? at::Tensor() : of(active);
  at::Tensor all;
  for (size_t row = 0; row < names.size(); ++row) {
    const auto found = of({names[row]});
    if (!found.defined()) continue;
    if (!all.defined()) all = at::zeros_like(found);
    const auto at = static_cast<int64_t>(row);
    all.slice(0, at, at + 1).copy_(found.slice(0, at, at + 1));
  }
  return all;
}

std::optional<int64_t> PeftModel::State::most_tokens(const std::vector<std::string>& names, bool out) const {
  const bool resized =
      std::any_of(all.begin(), all.end(), [](const auto& a) { return a->tokens_in || a->tokens_out; });
  if (!resized) return {};
  const auto own = owner.model_->config().optional_integer("vocab_size");
  const auto working = names.empty() ? (disabled ? std::vector<std::string>() : active) : names;
  // Beside rows of the base the logits are the base's, too, at least.
  const bool beside =
      std::find(working.begin(), working.end(), "__base__") != working.end() || working.empty();
  std::optional<int64_t> most = beside ? own : std::nullopt;
  for (const auto& name : working) {
    if (name == "__base__") continue;
    const auto& adapter = get(name);
    const auto its = out ? adapter.tokens_out : adapter.tokens_in;
    const bool whole = names.empty() && its;  // active for all rows: it replaces the base's
    if (whole) return its;
    if (its || own) most = std::max(most.value_or(0), its.value_or(own.value_or(0)));
  }
  return most;
}

void PeftModel::State::add_penalties(ModelOutput& out, const Routing& by) const {
  if (!out.loss.defined()) return;
  read_state(versions.penalties, "the adapters that add to the loss");
  for (const auto* adapter : by_slot(/*also_vacant=*/false)) {
    const auto* gate = by.gate(*adapter->slot);
    if (!gate || !adapter->trainable || !adapter->shared) continue;
    if (const auto penalty = adapter->shared->penalty(); penalty.defined())
      out.loss = gate->if_any(out.loss + penalty, out.loss);
  }
}

}  // namespace graft
