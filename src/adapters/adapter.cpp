#include "adapters/adapter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "adapters/methods/changed_base.h"
#include "adapters/methods/lora.h"
#include "adapters/methods/lora_variants.h"
#include "adapters/methods/trainable_tokens.h"
#include "adapters/mixture.h"
#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "adapters/replacement.h"
#include "adapters/tying.h"
#include "graft/error.h"
#include "io/format/hub_cache.h"
#include "models/architecture.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

const Field* find_field(const Method& method, std::string_view name) {
  for (const auto& field : method.fields)
    if (field.name == name) return &field;
  return nullptr;
}

/// PEFT trains a classifier's head along with the adapter, whatever `modules_to_save` says.
AdapterConfig with_head(const AdapterConfig& config) {
  const auto task = config.string("task_type");
  if (task != "SEQ_CLS" && task != "TOKEN_CLS") return config;
  if (find_method(config.peft_type()).lacks_field("modules_to_save")) return config;
  auto names = config.strings("modules_to_save");
  for (const char* head : {"classifier", "score"})
    if (std::find(names.begin(), names.end(), head) == names.end()) names.emplace_back(head);
  return config.with("modules_to_save", names);
}

void warn_of_idle_patterns(const AdapterConfig& config, const Method& method,
                           const std::vector<Target>& layers) {
  for (const char* field :
       {"rank_pattern", "alpha_pattern", "lambda_pattern", "n_frequency_pattern", "block_size_pattern"}) {
    // AdaLoRA's rank_pattern is no pattern: it is what training made of each layer.
    const auto* known = find_field(method, field);
    if (!known || !known->fallback.is_object()) continue;
    for (const auto& [pattern, value] : config.pattern(field)) {
      const auto means = [&, &key = pattern](const Target& target) {
        return pattern_means(config, field, key, target.path);
      };
      if (std::none_of(layers.begin(), layers.end(), means))
        log_warning("[adapters] \"" + std::string(field) + "\": \"" + pattern +
                    "\" matches no adapted layer and has no effect");
    }
  }
}

/// With bias="all" a layer in "modules_to_save" has its own bias already, which is no change of the base's;
/// PEFT's file has both once more, named by where its wrapper, some module above the layer, keeps them.
void take_other_biases(const PartBuild& build) {
  for (const char* place : {".original_module", ".modules_to_save", ".modules_to_save.default"})
    for (size_t end = 0; end != std::string::npos;) {
      end = build.path.find('.', end + 1);
      const auto under = end == std::string::npos ? "" : build.path.substr(end);
      const auto key = std::string(build.root) + build.path.substr(0, end) + place + under + ".bias";
      build.source.take_if_there(key, build.layer.bias.sizes());
    }
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// For a tensor that is not there, until finish() says so. A configuration's numbers may be anything: large
/// ones must not be allocated.
at::Tensor stand_in(at::IntArrayRef shape) {
  constexpr double most = 1 << 24;
  double count = 1;
  for (const auto size : shape) count *= static_cast<double>(size);
  if (count > most)
    throw ConfigError("[adapters] the configuration asks for a tensor of shape " + shape_text(shape) +
                      ", which the adapter's file does not have");
  return at::zeros(shape);
}

/// Whether PEFT keeps whole numbers under this name.
bool counts(const std::string& key) {
  return key.find("indices") != std::string::npos || key.find("frod_s_size") != std::string::npos ||
         key.ends_with("num_batches_tracked");
}

std::string first_few(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size() && i < 8; ++i) text += "\n  " + items[i];
  if (items.size() > 8) text += "\n  and " + std::to_string(items.size() - 8) + " more";
  return text;
}

}  // namespace

std::vector<Adapter::Named> Adapter::tensors() const {
  std::vector<Named> all;
  if (shared)
    for (const auto& entry : shared->entries()) all.push_back({entry.key, entry.tensor, entry.trainable});
  for (const auto& placed : parts)
    for (const auto& entry : placed.part->entries())
      all.push_back({entry.key, placed.part->tensor(entry), entry.trainable});
  return all;
}

NamedTensors Adapter::state_dict() const {
  NamedTensors state;
  if (shared) state = shared->saved();
  for (const auto& placed : parts)
    for (const auto& [key, tensor] : placed.part->saved()) state.emplace_back(key, tensor.detach());
  return state;
}

namespace {

/// The fields that decide which program an adapter is.
std::map<std::string, nlohmann::json> program_fields(const AdapterConfig& config) {
  const auto& method = find_method(config.peft_type());
  const auto all = nlohmann::json::parse(config.dump());
  std::map<std::string, nlohmann::json> kept;
  for (const auto& field : method.fields)
    if (std::find(method.data_fields.begin(), method.data_fields.end(), field.name) ==
        method.data_fields.end())
      kept.emplace(field.name, all.at(std::string(field.name)));
  return kept;
}

const Adapter::Placed* at_same_place(const Adapter& home, const Adapter::Placed& placed) {
  for (const auto* list : {&home.parts, &home.idle})
    for (const auto& each : *list)
      if (each.target.path == placed.target.path && each.type == placed.type) return &each;
  return nullptr;
}

}  // namespace

bool fits(const Adapter& adapter, const Adapter& home) {
  if (adapter.config.peft_type() != home.config.peft_type() ||
      program_fields(adapter.config) != program_fields(home.config) ||
      (adapter.shared == nullptr) != (home.shared == nullptr) ||
      (adapter.shared && !same_tensors(*adapter.shared, *home.shared)))
    return false;
  size_t used = 0;
  for (const auto& placed : adapter.parts) {
    const auto* place = at_same_place(home, placed);
    if (!place || !place->part->can_take(*placed.part)) return false;
    ++used;
  }
  if (used == home.parts.size() + home.idle.size()) return true;
  // What the adapter leaves alone must be able to do nothing. (To try is to do it: the slot is vacant.)
  for (const auto* list : {&home.parts, &home.idle})
    for (const auto& each : *list)
      if (!at_same_place(adapter, each) && !each.part->silence()) return false;
  return true;
}

void move_into(Adapter& adapter, const Adapter& home) {
  if (adapter.shared) {
    copy_tensors(*adapter.shared, *home.shared);
    adapter.shared = home.shared;
  }
  std::vector<const Part*> used;
  for (auto& placed : adapter.parts) {
    const auto& place = *at_same_place(home, placed);
    place.part->take(*placed.part);
    placed.part = place.part;
    used.push_back(place.part.get());
  }
  for (const auto* list : {&home.parts, &home.idle})
    for (const auto& each : *list)
      if (std::find(used.begin(), used.end(), each.part.get()) == used.end()) {
        each.part->silence();
        adapter.idle.push_back(each);
      }
  adapter.slot = home.slot;
  adapter.number = home.number;
}

namespace {

Draws draws_of(const AdapterConfig& config, const Method& method) {
  if (const auto own = method.draws ? method.draws(config) : Draws::never; own != Draws::never) return own;
  const auto fields = nlohmann::json::parse(config.dump());
  const bool drops_out = std::any_of(fields.items().begin(), fields.items().end(), [](const auto& field) {
    return field.key().ends_with("dropout") && field.value().is_number() &&
           field.value().template get<double>() > 0;
  });
  return drops_out ? Draws::in_training : Draws::never;
}

void add_named_weights(Adapter& adapter, const Method& method, const PreTrainedModel& model,
                       const std::function<PartBuild(const Target&)>& build) {
  for (const auto& target : method.named_weights(adapter.config, model)) {
    if (std::any_of(adapter.parts.begin(), adapter.parts.end(),
                    [&](const auto& each) { return each.target.path == target.path; }))
      throw ConfigError(
          "[adapters] \"" + target.path +
          "\" is meant by \"target_parameters\" and by \"target_modules\" (or its default): name it in "
          "one, and set \"target_modules\" to [] where it is to name nothing");
    auto made = build(target);
    made.parameter = ".weight";
    auto part = method.weight_part(made);
    part->to_one_dtype();
    adapter.parts.push_back({target, std::string(method.type), std::move(part)});
  }
}

/// Tables of tokens that have grown since the base was made, and how many tokens the adapter knows with them.
void add_resized(Adapter& adapter, const PreTrainedModel& model,
                 const std::function<PartBuild(const Target&)>& build) {
  for (const auto& target : weighted_layers(model)) {
    if (!is_token_table(build(target))) continue;
    const auto has_own = [&](const auto& each) {
      return each.target.path == target.path && each.type != kBias && each.type != kTrainableTokens &&
             each.type != kChangedBase;
    };
    if (std::any_of(adapter.parts.begin(), adapter.parts.end(), has_own)) continue;
    if (auto part = resized_part(build(target)))
      adapter.parts.push_back({target, kModulesToSave, std::move(part)});
  }
  for (const auto& placed : adapter.parts)
    if (const auto rows = placed.part->resized_rows()) {
      const bool embeds = placed.target.layer->kind() == nn::LayerKind::embedding;
      (embeds ? adapter.tokens_in : adapter.tokens_out) = rows;
    }
}

/// A layer that is tied to an embedding with tokens of the adapter's own: magnitudes are of which weight?
void check_no_dora_on_tokens(const Adapter& adapter) {
  for (const auto& tokens : adapter.parts)
    for (const auto& each : adapter.parts)
      if (const auto* lora = dynamic_cast<const LoraPart*>(each.part.get());
          lora && lora->magnitude.defined() && tokens.type == kTrainableTokens &&
          tokens.target.path == each.target.path)
        throw ConfigError(
            "[trainable tokens] \"" + each.target.path +
            "\" shares its weight with the embedding whose tokens are trained: \"use_dora\" does "
            "not go with that, in PEFT either");
}

/// PEFT's names follow its wrappers around the layer.
BiasNames bias_names(const Adapter& adapter, const Target& target, const PreTrainedModel& model, bool adapted,
                     bool all) {
  BiasNames names;
  names.unseen = std::any_of(adapter.parts.begin(), adapter.parts.end(), [&](const auto& each) {
    return each.type == kTrainableTokens && each.target.path == target.path;
  });
  names.suffix =
      std::string(adapted ? "base_layer." : "") + (names.unseen ? "token_adapter.base_layer." : "") + "bias";
  if (!all) return names;
  const auto own = model.named_parameters();
  for (const auto& [name, twin] : find_architecture(model.architecture()).tied)
    if (const auto* tensor = own.find(twin); tensor && name == target.path + ".bias") {
      names.twin_path = twin;
      names.twin = *tensor;
    }
  return names;
}

}  // namespace

std::unique_ptr<Adapter> build_adapter(const std::string& name, const AdapterConfig& given,
                                       const PreTrainedModel& model, TensorSource& source) {
  const auto& method = find_method(given.peft_type());
  const bool ties = find_field(method, "ensure_weight_tying") && given.boolean("ensure_weight_tying");
  const auto named = with_targets(with_head(given), model);
  const auto tying = ties ? with_tied_names(named, model) : TiedNames{named};
  const auto& targeted = tying.config;
  const auto config = method.prompt     ? with_model_sizes(targeted, model)
                      : method.complete ? method.complete(targeted, model.config().model_type(), source)
                                        : targeted;
  auto adapter = std::make_unique<Adapter>(Adapter{.name = name, .config = config});
  adapter->draws = draws_of(config, method);
  adapter->invocation = invocation_tokens(config);
  const auto layers = method.layers        ? method.layers(config, model)
                      : method.on_layers() ? adapted_layers(config, model)
                                           : std::vector<Target>();
  warn_of_idle_patterns(config, method, layers);
  if (method.shared) {
    std::vector<nn::WeightedLayer*> bare;
    bare.reserve(layers.size());
    for (const auto& target : layers) bare.push_back(target.layer.get());
    adapter->shared = method.shared(config, bare, source);
  }
  if (method.prompt) adapter->shared = method.prompt({config, model, source});
  if (method.mixture) adapter->shared = method.mixture(config, model, layers, source);
  const auto build = [&](const Target& target) {
    PartBuild part{config, *target.layer, target.path, source, adapter->shared.get()};
    part.model = &model;
    if (!method.on_layers()) part.root = "base_model.";  // PEFT wraps no tuner around the model
    return part;
  };
  const auto is_adapted = [&](const Target& target) {
    return std::any_of(layers.begin(), layers.end(), [&](const Target& t) { return t.path == target.path; });
  };
  // Whoever shares an embedding's weight follows what the adapter does to the embedding.
  const auto add_tied = [&](const std::string& type, auto make) {
    const auto leaders = adapter->parts;
    for (const auto& target : weighted_layers(model)) {
      const auto same = [&](const auto& placed) {
        return placed.type == type && placed.target.path != target.path &&
               placed.target.layer->kind() == nn::LayerKind::embedding &&
               placed.target.layer->weight.is_same(target.layer->weight);
      };
      const auto own = [&](const auto& placed) {
        return placed.type == type && placed.target.path == target.path;
      };
      const auto leader = std::find_if(leaders.begin(), leaders.end(), same);
      if (leader != leaders.end() && std::none_of(leaders.begin(), leaders.end(), own))
        adapter->parts.push_back({target, type, make(build(target), *leader->part)});
    }
  };
  const auto own_part = [&](const Target& target) {
    const auto made = build(target);
    // IA3's factors are on channels, whatever is between them.
    if (made.groups() > 1 && method.type != "IA3") made.refuse("its channels are in groups");
    auto part = method.part(made);
    part->to_one_dtype();
    return part;
  };
  const auto tied = method.tied ? method.tied : tying.targets ? tied_lora_part : nullptr;
  for (const auto& target : layers)
    if (!tied || !shares_embedding(*target.layer, layers))
      adapter->parts.push_back({target, std::string(method.type), own_part(target)});
  if (method.named_weights) add_named_weights(*adapter, method, model, build);
  if (tied) add_tied(std::string(method.type), tied);
  add_changed_bases(*adapter, model, build);
  if (find_field(method, "trainable_token_indices") && config.has("trainable_token_indices")) {
    for (const auto& [target, indices] : token_targets(config, model)) {
      if (is_adapted(target))
        throw ConfigError("[trainable tokens] \"" + target.path +
                          "\" is adapted by \"target_modules\" already: a layer has an adapter or tokens of "
                          "its own, not both");
      adapter->parts.push_back({target, kTrainableTokens, tokens_part(build(target), indices)});
    }
    add_tied(kTrainableTokens, tied_tokens_part);
    check_no_dora_on_tokens(*adapter);
  }
  const auto saved = saved_layers(config, model);
  for (const auto& target : saved)
    if (is_adapted(target))
      throw ConfigError("[adapters] \"" + target.path +
                        "\" is adapted by \"target_modules\" and kept whole by \"modules_to_save\", whose "
                        "names match any end of a path: write more of the path there");
  if (find_field(method, "bias") && config.string("bias") != "none") {
    const bool all = config.string("bias") == "all";
    for (const auto& target : all ? weighted_layers(model) : layers) {
      if (!target.layer->bias.defined()) continue;
      const auto made = build(target);
      if (std::any_of(saved.begin(), saved.end(), [&](const Target& s) { return s.path == target.path; }))
        take_other_biases(made);
      else
        adapter->parts.push_back(
            {target, kBias, bias_part(made, bias_names(*adapter, target, model, is_adapted(target), all))});
    }
  }
  for (const auto& target : saved) {
    if (tying.saved && shares_embedding(*target.layer, saved)) continue;
    auto part = replacement_part(build(target));
    part->to_one_dtype();
    adapter->parts.push_back({target, kModulesToSave, std::move(part)});
  }
  if (tying.saved) add_tied(kModulesToSave, tied_replacement_part);
  add_resized(*adapter, model, build);
  if (ties) check_tying(*adapter, model);
  if (adapter->shared) adapter->shared->finish(model);
  return adapter;
}

GivenSource::GivenSource(const NamedTensors& tensors, std::string label)
    : tensors_(tensors.begin(), tensors.end()), label_(std::move(label)) {}

GivenSource GivenSource::open(const std::filesystem::path& given, std::optional<at::ScalarType> dtype) {
  const auto dir = io::local_path(given);
  const auto file = Checkpoint::open(dir, "adapter_model");
  NamedTensors tensors;
  for (const auto& name : file.names()) {
    auto tensor = file.tensor(name);
    // What nothing can be computed in (float8) is only a way to store numbers.
    const auto own = tensor.scalar_type();
    const bool storage = own != at::kFloat && own != at::kHalf && own != at::kBFloat16 && own != at::kDouble;
    const auto wanted = dtype.value_or(storage ? at::kFloat : own);
    tensors.emplace_back(name, tensor.is_floating_point() ? tensor.to(wanted) : tensor);
  }
  return {tensors, dir.string()};
}

at::Tensor GivenSource::take(const std::string& key, at::IntArrayRef shape) {
  if (auto tensor = take_if_there(key, shape); tensor.defined()) return tensor;
  missing_.push_back(key);
  return stand_in(shape);
}

at::Tensor GivenSource::take_if_there(const std::string& key, at::IntArrayRef shape) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return {};
  taken_.insert(key);
  const auto& tensor = found->second;
  if (tensor.is_floating_point() == counts(key))
    misshapen_.push_back(key + " holds " + at::toString(tensor.scalar_type()) + " and should hold " +
                         (counts(key) ? "whole numbers" : "floating-point numbers"));
  else if (tensor.sizes() == shape)
    return tensor;
  else
    misshapen_.push_back(key + " is " + shape_text(found->second.sizes()) + " and should be " +
                         shape_text(shape));
  return stand_in(shape);
}

std::vector<std::vector<int64_t>> GivenSource::shapes(std::string_view ending) const {
  std::vector<std::vector<int64_t>> found;
  for (const auto& [key, tensor] : tensors_)
    if (key.ends_with(ending)) found.push_back(tensor.sizes().vec());
  return found;
}

namespace {

/// Whether the tensor is the base's weight as the adapter has it: the very one, but for what its start took
/// out of it, which is computed again and rounded.
bool is_base_weight(const at::Tensor& given, const std::string& path, const at::Tensor& base,
                    const Adapter& adapter) {
  if (given.dim() == base.dim() && given.dim() > 0 && given.size(0) > base.size(0) &&
      given.sizes().slice(1) == base.sizes().slice(1))  // of a base whose vocabulary has grown
    return is_base_weight(given.narrow(0, 0, base.size(0)), path, base, adapter);
  if (base.sizes() != given.sizes()) return false;
  at::Tensor changed;
  for (const auto& placed : adapter.parts)
    if (path == placed.target.path + ".weight")
      if (const auto own = placed.part->base_weight(); !own.is_same(base)) changed = own.detach();
  if (!changed.defined()) return at::equal(given.to(base.scalar_type()), base.detach().cpu());
  constexpr double rounded = 1e-2;  // of the largest: bfloat16's, and then some
  const auto off = (given.to(at::kFloat) - changed.to(at::kCPU, at::kFloat)).abs().max().item<double>();
  return off <= rounded * base.abs().max().item<double>();
}

/// The path of a layer's own weight, without the words for where PEFT keeps it beside an adapter's.
std::string own_path(std::string key) {
  constexpr std::string_view prefix = "base_model.model.";
  if (key.starts_with(prefix)) key.erase(0, prefix.size());
  for (const std::string_view word : {".token_adapter", ".base_layer", ".original_module"})
    if (const auto at = key.find(std::string(word) + "."); at != std::string::npos)
      key.erase(at, word.size());
  return key;
}

/// The key of what is trained in a layer's place, of the same under PEFT's other name; empty for other keys.
std::string saved_key(std::string key) {
  constexpr std::string_view word = ".modules_to_save";
  const auto at = key.find(std::string(word) + ".");
  return at == std::string::npos ? "" : key.erase(at, word.size());
}

}  // namespace

void GivenSource::finish(const PreTrainedModel& model, const Adapter& adapter) {
  std::string what;
  if (!missing_.empty()) what += "\nmissing:" + first_few(missing_);
  if (!misshapen_.empty())
    what += "\nof another shape or kind than the model and the configuration give:" + first_few(misshapen_);
  // Trained tokens stand in the file once more for the layer that shares the embedding's weight.
  const auto is_there_twice = [&](const std::string& key, const at::Tensor& tensor) {
    constexpr std::string_view ending = ".token_adapter.trainable_tokens_delta";
    return key.ends_with(ending) && std::ranges::any_of(taken_, [&](const std::string& other) {
             return other.ends_with(ending) && tensors_.contains(other) &&
                    at::equal(tensors_.at(other), tensor);
           });
  };
  std::vector<std::string> left;
  // Asked for only where a tensor is left: the model's tree grows with every adapter.
  std::optional<torch::OrderedDict<std::string, at::Tensor>> own;
  for (const auto& [key, tensor] : tensors_) {
    if (taken_.contains(key)) continue;
    if (!own) own = model.named_parameters();
    if (const auto saved = tensors_.find(saved_key(key));
        saved != tensors_.end() && taken_.contains(saved->first) && at::equal(saved->second, tensor))
      continue;
    if (is_there_twice(key, tensor)) continue;
    // PEFT saves the base's own weight beside an adapted embedding. It must be this base's.
    const auto path = own_path(key);
    if (const auto* base = own->find(path); base && is_base_weight(tensor, path, *base, adapter)) continue;
    left.push_back(key);
  }
  if (!left.empty())
    what +=
        "\nin the file, and nobody needs them (the base model is another one, or the configuration does not "
        "fit):" +
        first_few(left);
  if (!what.empty()) throw FormatError("[adapters] " + label_ + " does not fit the model" + what);
}

}  // namespace graft::adapters
