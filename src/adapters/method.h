// The methods: one row each, in registry.cpp.
#pragma once
#include <algorithm>
#include <filesystem>

#include "adapters/part.h"
#include "adapters/schema.h"
#include "graft/model.h"

namespace graft::adapters {

struct PromptBuild;
class Mixture;
class Prompt;

/// When an adapter draws random numbers, beside what it drops out.
enum class Draws : uint8_t { never, in_training, always };

/// A layer by its path in the model.
struct Target {
  std::string path;
  std::shared_ptr<nn::WeightedLayer> layer;
};

struct Method {
  std::string_view type;  ///< PEFT's name, "LORA"
  /// Beyond common_fields() and target_fields().
  std::vector<Field> fields;
  /// Those of target_fields() that PEFT's configuration of this method does not have.
  std::vector<std::string_view> lacks = {};
  /// Builds the adapter's part on a layer; null for methods that are not put on layers.
  std::shared_ptr<Part> (*part)(const PartBuild&) = nullptr;
  /// Which layers PEFT takes where the config names none, by model type.
  std::vector<std::pair<std::string_view, std::vector<std::string>>> default_targets = {};
  /// It goes on all linear layers of model types that are not among them.
  bool all_linear_by_default = false;
  /// Fills in the layers that other adapters' files decide, before those defaults; null: none.
  AdapterConfig (*targets)(const AdapterConfig&) = nullptr;
  /// ConfigError for fields that contradict each other.
  void (*check)(const AdapterConfig&) = nullptr;
  /// Fills in what depends on the model's type, beside the targets, and what the adapter's tensors decide.
  AdapterConfig (*complete)(const AdapterConfig&, std::string_view model_type, const TensorSource&) = nullptr;
  /// The layers that the method is put on, where target_modules names something else than those; null: what
  /// target_modules says.
  std::vector<Target> (*layers)(const AdapterConfig&, const PreTrainedModel&) = nullptr;
  /// Layers whose weights the configuration names one by one, and the part on such a layer; null: none.
  std::vector<Target> (*named_weights)(const AdapterConfig&, const PreTrainedModel&) = nullptr;
  std::shared_ptr<Part> (*weight_part)(const PartBuild&) = nullptr;
  /// What the parts share; made before them. `layers` are the adapted ones, in the model's order.
  std::shared_ptr<Shared> (*shared)(const AdapterConfig&, const std::vector<nn::WeightedLayer*>& layers,
                                    TensorSource&) = nullptr;
  /// Builds the part on a layer that shares the weight of an adapted embedding and follows it; null: every
  /// layer has its own.
  std::shared_ptr<Part> (*tied)(const PartBuild&, const Part& embedding) = nullptr;
  /// Methods that are put on no layer: what they put before the input of a call. It is the adapter's
  /// `shared`.
  std::shared_ptr<Prompt> (*prompt)(const PromptBuild&) = nullptr;
  /// What tells the parts each token's shares of their experts. It is the adapter's `shared`.
  std::shared_ptr<Mixture> (*mixture)(const AdapterConfig&, const PreTrainedModel&,
                                      const std::vector<Target>& layers, TensorSource&) = nullptr;

  /// How PEFT has the keys of fields such as "block_size_pattern" match paths: after a dot, so that one that
  /// begins with "^" never does and the halves of "a|b" stand alone; else whole ends of paths.
  bool patterns_after_dot = false;

  Draws (*draws)(const AdapterConfig&) = nullptr;  ///< null: never
  /// Makes what a configuration that was read from `path` says of its place hold anywhere; null: it says
  /// nothing of that.
  AdapterConfig (*located)(const AdapterConfig&, const std::filesystem::path& path) = nullptr;
  /// It asks for `task_ids`.
  bool takes_tasks = false;
  /// What it gives for a token depends on all tokens of the call, later ones and other rows' too: to fill a
  /// call up, to leave out what was read before or to add guesses would change the rest.
  bool mixes_tokens = false;

  /// Fields whose values show in an adapter's tensors only: adapters that differ in nothing else are one
  /// program.
  std::vector<std::string_view> data_fields = {};

  bool on_layers() const { return part != nullptr; }
  bool lacks_field(std::string_view name) const {
    return std::find(lacks.begin(), lacks.end(), name) != lacks.end();
  }
};

/// Names of layers by model_type.
using DefaultTargets = std::vector<std::pair<std::string_view, std::vector<std::string>>>;

/// Where most methods go when the config does not say.
const DefaultTargets& usual_targets();
/// The same, but for one model type, which need not be among them.
DefaultTargets usual_targets_but(std::string_view model_type, const std::vector<std::string>& names);

/// All of them.
const std::vector<Method>& methods();
/// ConfigError listing the known ones.
const Method& find_method(std::string_view type);

}  // namespace graft::adapters
