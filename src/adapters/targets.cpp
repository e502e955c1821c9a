#include "adapters/targets.h"

#include <algorithm>
#include <set>

#include "graft/error.h"
#include "models/architecture.h"
#include "support/log.h"
#include "support/regex.h"

namespace graft::adapters {
namespace {

using NamedModules = std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>;

void add_modules(const torch::nn::Module& module, const std::string& prefix, NamedModules& found) {
  for (const auto& child : module.named_children()) {
    if (nn::is_wrapped_path(child.key())) continue;
    const auto path = prefix + child.key();
    found.emplace_back(path, child.value());
    add_modules(*child.value(), path + ".", found);
  }
}

/// The model's own, in its order. What adapters hung into the tree is not gone through: it grows with them.
NamedModules own_modules(const PreTrainedModel& model) {
  NamedModules found;
  add_modules(model, "", found);
  return found;
}

bool ends_with_name(const std::string& path, const std::string& name) {
  return path == name || path.ends_with("." + name);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

/// A list of names, or a pattern, over paths.
class Matcher {
 public:
  Matcher(const ModuleNames& names, std::string_view field) : names_(names.names()) {
    if (names.pattern()) pattern_.emplace(*names.pattern(), "[adapters] \"" + std::string(field) + "\"");
  }
  bool empty() const { return names_.empty() && !pattern_; }
  bool by_pattern() const { return pattern_.has_value(); }
  bool operator()(const std::string& path) const {
    if (pattern_) return pattern_->matches_all(path);
    return std::any_of(names_.begin(), names_.end(),
                       [&](const auto& name) { return ends_with_name(path, name); });
  }

 private:
  std::vector<std::string> names_;
  std::optional<Regex> pattern_;
};

/// `layers_to_transform` and `layers_pattern`: which numbered blocks are meant. They narrow a name that ends
/// a path, not one that is the whole path.
class BlockFilter {
 public:
  explicit BlockFilter(const AdapterConfig& config)
      : numbers_(config.integers("layers_to_transform")),
        set_(config.has("layers_to_transform") || !numbers_.empty()) {
    auto patterns = config.strings("layers_pattern");
    std::erase(patterns, "");
    constexpr auto what = "[adapters] \"layers_pattern\"";
    if (patterns.empty()) patterns_.emplace_back(".*?\\.[^.]*\\.(?P<idx>\\d+)\\.", what);
    for (const auto& pattern : patterns)
      patterns_.emplace_back("(?:^|.*?\\.)" + pattern + "\\.(?P<idx>\\d+)\\.", what);
  }
  bool operator()(const std::string& path) const {
    if (!set_) return true;
    for (const auto& pattern : patterns_)
      if (const auto number = pattern.group(path, "idx"))
        return std::find(numbers_.begin(), numbers_.end(), std::stoll(*number)) != numbers_.end();
    return false;
  }

 private:
  std::vector<int64_t> numbers_;
  bool set_;
  std::vector<Regex> patterns_;
};

bool is_head(const std::string& path, const AdapterConfig& config, const std::string& architecture) {
  // transformers' get_output_embeddings(), and the heads PEFT leaves out of "all-linear" when it classifies.
  const auto task = find_architecture(architecture).task;
  if (task == Task::causal_lm || task == Task::masked_lm || task == Task::seq2seq_lm)
    return path == "lm_head" || path == "lm_head.decoder" || path == "cls.predictions.decoder" ||
           path == "vocab_projector";
  return config.string("task_type") == "SEQ_CLS" && (path == "score" || path == "classifier");
}

std::vector<std::string> linear_layers(const AdapterConfig& config, const PreTrainedModel& model) {
  std::vector<std::string> paths;
  for (const auto& [path, layer] : weighted_layers(model)) {
    const bool linear = layer->kind() == nn::LayerKind::linear || layer->kind() == nn::LayerKind::conv1d;
    if (linear && !is_head(path, config, model.architecture())) paths.push_back(path);
  }
  return paths;
}

/// An empty list beside "target_parameters": no layer is meant, and none by default.
bool only_parameters(const AdapterConfig& config) {
  return config.is_list("target_modules") && config.modules("target_modules").empty();
}

std::string lower(std::string text) {
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// A family's defaults name what only some of its models have (Falcon's norms): those a model lacks are no
/// mistake, as long as one is left.
bool are_the_defaults(const std::vector<std::string>& names, const AdapterConfig& config,
                      const PreTrainedModel& model) {
  const std::set<std::string> given(names.begin(), names.end());
  for (const auto& [type, usual] : find_method(config.peft_type()).default_targets)
    if (type == model.config().model_type())
      return given == std::set<std::string>(usual.begin(), usual.end());
  return false;
}

/// "a.b.c": "c", "b.c", "a.b.c"
std::vector<std::string> endings_of(const std::string& path) {
  std::vector<std::string> endings;
  for (size_t dot = path.rfind('.'); dot != path.npos; dot = dot == 0 ? path.npos : path.rfind('.', dot - 1))
    endings.push_back(path.substr(dot + 1));
  endings.push_back(path);
  return endings;
}

/// The shortest endings of these paths that no other module of the model has.
std::vector<std::string> shortest_names(const std::vector<std::string>& paths, const NamedModules& modules) {
  std::set<std::string> others;  // and all their endings
  for (const auto& [path, module] : modules)
    if (std::none_of(paths.begin(), paths.end(),
                     [&](const auto& each) { return ends_with_name(path, each); }))
      for (auto& ending : endings_of(path)) others.insert(std::move(ending));
  std::vector<std::vector<std::string>> all;
  all.reserve(paths.size());
  for (const auto& path : paths) all.push_back(endings_of(path));
  std::sort(all.begin(), all.end());
  std::set<std::string> names;
  for (const auto& endings : all) {
    const auto covered = [&](const std::string& name) { return endings.back().ends_with("." + name); };
    for (const auto& ending : endings) {
      if (names.contains(ending) || others.contains(ending) ||
          std::any_of(names.begin(), names.end(), covered))
        continue;
      names.insert(ending);
      break;
    }
  }
  return names.empty() ? paths : std::vector<std::string>(names.begin(), names.end());
}

/// PEFT makes long lists of names short, and saves them so.
AdapterConfig with_short_names(const AdapterConfig& config, const PreTrainedModel& model) {
  constexpr size_t long_list = 20;
  const auto targets = config.modules("target_modules");
  if (targets.names().size() < long_list || config.peft_type() == "IA3") return config;
  const auto names = shortest_names(targets.names(), own_modules(model));
  return names.size() < targets.names().size() ? config.with("target_modules", names) : config;
}

}  // namespace

std::vector<Target> weighted_layers(const PreTrainedModel& model) {
  std::vector<Target> layers;
  for (const auto& [path, module] : own_modules(model))
    if (auto layer = std::dynamic_pointer_cast<nn::WeightedLayer>(module))
      layers.push_back({path, std::move(layer)});
  return layers;
}

AdapterConfig with_targets(const AdapterConfig& given, const PreTrainedModel& model) {
  const auto& method = find_method(given.peft_type());
  if (!method.on_layers() || method.layers) return given;
  const auto config = method.targets ? method.targets(given) : given;
  const auto targets = config.modules("target_modules");
  const auto linear = [&] {
    return with_short_names(config.with("target_modules", linear_layers(config, model)), model);
  };
  if (targets.pattern() && lower(*targets.pattern()) == "all-linear") return linear();
  if (!targets.empty() || only_parameters(config)) return with_short_names(config, model);
  for (const auto& [type, names] : method.default_targets)
    if (type == model.config().model_type()) return config.with("target_modules", names);
  if (method.all_linear_by_default) return linear();
  throw ConfigError("[adapters] \"target_modules\" is not set, and " + config.peft_type() +
                    " has no default for \"" + model.config().model_type() +
                    "\": name the layers to adapt, or \"all-linear\"");
}

std::vector<Target> adapted_layers(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto targets = config.modules("target_modules");
  if (only_parameters(config)) return {};
  const Matcher wanted(targets, "target_modules");
  const Matcher excluded(config.modules("exclude_modules"), "exclude_modules");
  const BlockFilter in_block(config);
  std::vector<Regex> saved;
  for (const auto& name : config.strings("modules_to_save"))
    saved.emplace_back("(^|.*\\.)" + name + "($|\\..*)", "[adapters] \"modules_to_save\"");

  std::vector<Target> found;
  std::set<std::string> unmatched(targets.names().begin(), targets.names().end());
  size_t left_out = 0;
  for (const auto& [path, module] : own_modules(model)) {
    if (!wanted(path)) continue;
    std::erase_if(unmatched, [&](const std::string& name) { return ends_with_name(path, name); });
    const bool is_saved =
        std::any_of(saved.begin(), saved.end(), [&](const Regex& each) { return each.matches_start(path); });
    const bool whole =
        std::find(targets.names().begin(), targets.names().end(), path) != targets.names().end();
    if ((!excluded.empty() && excluded(path)) || is_saved ||
        !(wanted.by_pattern() || whole || in_block(path))) {
      ++left_out;
      continue;
    }
    auto layer = std::dynamic_pointer_cast<nn::WeightedLayer>(module);
    if (!layer)
      throw ConfigError(
          "[adapters] \"target_modules\" names \"" + path +
          "\", which is not a single layer; adapters are put on linear, convolution, embedding and "
          "normalisation layers");
    found.push_back({path, std::move(layer)});
  }
  if (!unmatched.empty() && !are_the_defaults(targets.names(), config, model))
    throw ConfigError("[adapters] \"target_modules\": " + listed({unmatched.begin(), unmatched.end()}) +
                      " matched no module of " + model.architecture());
  if (found.empty())
    throw ConfigError("[adapters] no layer of " + model.architecture() + " is left to adapt: " +
                      (left_out ? "all that \"target_modules\" matches is left out by \"exclude_modules\", "
                                  "\"modules_to_save\" or \"layers_to_transform\""
                                : "\"target_modules\" matches nothing"));
  return found;
}

std::vector<Target> saved_layers(const AdapterConfig& config, const PreTrainedModel& model) {
  auto names = config.strings("modules_to_save");
  if (names.empty()) return {};
  std::vector<std::string> roots;
  std::set<std::string> unmatched(names.begin(), names.end());
  for (const auto& [path, module] : own_modules(model))
    for (const auto& name : names)
      if (path.ends_with(name)) {  // PEFT matches the end of the path, not whole names
        roots.push_back(path);
        unmatched.erase(name);
      }
  // PEFT itself puts both names there for every classifier, and one of them is always missing.
  auto wrong = unmatched;
  if (unmatched.size() < names.size())
    for (const char* head : {"classifier", "score"}) wrong.erase(head);
  if (!wrong.empty())
    throw ConfigError("[adapters] \"modules_to_save\": " + listed({wrong.begin(), wrong.end()}) +
                      " matched no module of " + model.architecture());
  const auto under = [&](const std::string& path) {
    return std::any_of(roots.begin(), roots.end(),
                       [&](const std::string& root) { return path == root || path.starts_with(root + "."); });
  };
  std::vector<Target> found;
  std::set<std::string> covered;
  for (auto& target : weighted_layers(model)) {
    if (!under(target.path)) continue;
    for (const char* name : {".weight", ".bias"}) covered.insert(target.path + name);
    found.push_back(std::move(target));
  }
  for (const auto& [path, parameter] : model.unique_parameters())
    if (!nn::is_wrapped_path(path) && under(path) && !covered.contains(path))
      throw ConfigError("[adapters] \"modules_to_save\": \"" + path +
                        "\" is not a weight or bias of a layer, and cannot be kept by an adapter yet");
  return found;
}

}  // namespace graft::adapters
