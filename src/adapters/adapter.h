// One adapter on a model: built from a configuration, fresh or from its file.
#pragma once
#include <map>
#include <set>

#include "adapters/site.h"
#include "adapters/targets.h"
#include "graft/safetensors.h"

namespace graft::adapters {

struct Adapter {
  struct Placed {
    Target target;
    std::string type;  ///< what orders parts on a layer: the method, or what came with it
    std::shared_ptr<Part> part;
  };

  std::string name;
  AdapterConfig config;
  /// Its column in the routing table; none if it is put on no layer (prompts).
  std::optional<size_t> slot = {};
  size_t number = 0;  ///< tells what its parts share from others' in the module tree
  bool trainable = true;
  /// aLoRA's, from which on it works in a row.
  std::vector<int64_t> invocation = {};
  /// Its own numbers of tokens, where it was made after resize_token_embeddings(): that it knows, that it
  /// gives.
  std::optional<int64_t> tokens_in = {}, tokens_out = {};
  Draws draws = Draws::never;  ///< random numbers
  double scale = 1;            ///< what scale_adapter() multiplied it by
  /// Changes when the adapter goes from its slot: a program that took it by its name has the slot built in.
  std::shared_ptr<StateVersion> place = std::make_shared<StateVersion>();
  /// Its tensors have been told that they are not trained, and need not be told again.
  bool rests = false;
  std::shared_ptr<Shared> shared;
  std::vector<Placed> parts;
  /// Parts of its slot on layers that this adapter leaves alone; they do nothing.
  std::vector<Placed> idle = {};

  struct Named {
    std::string key;
    at::Tensor tensor;
    bool trainable;
  };
  /// All its tensors by their names in its file, as training sees them.
  std::vector<Named> tensors() const;
  /// What belongs into its file.
  NamedTensors state_dict() const;
};

/// Whether `adapter` can live in the slot of `home`, whose adapter is gone.
bool fits(const Adapter& adapter, const Adapter& home);
/// Moves its tensors into the parts of `home`, which become its own.
void move_into(Adapter& adapter, const Adapter& home);

/// Nothing of the model is changed.
std::unique_ptr<Adapter> build_adapter(const std::string& name, const AdapterConfig& config,
                                       const PreTrainedModel& model, TensorSource& source);

/// For an adapter that is made now.
class FreshSource : public TensorSource {
 public:
  at::Tensor take(const std::string&, at::IntArrayRef) override { return {}; }
  at::Tensor take_if_there(const std::string&, at::IntArrayRef) override { return {}; }
  bool fresh() const override { return true; }
  std::vector<std::vector<int64_t>> shapes(std::string_view) const override { return {}; }
};

/// An adapter that is there: every tensor of it must be taken, and have the shape that is asked for.
class GivenSource : public TensorSource {
 public:
  /// `label` names the adapter in error messages.
  GivenSource(const NamedTensors& tensors, std::string label);
  /// A folder's adapter_model.safetensors.
  static GivenSource open(const std::filesystem::path& dir, std::optional<at::ScalarType> dtype = {});

  at::Tensor take(const std::string& key, at::IntArrayRef shape) override;
  at::Tensor take_if_there(const std::string& key, at::IntArrayRef shape) override;
  bool fresh() const override { return false; }
  std::vector<std::vector<int64_t>> shapes(std::string_view ending) const override;
  /// FormatError listing what is missing, of the wrong shape, or was taken by nobody. `model` has the weights
  /// that PEFT saves along with an adapted embedding: those are no part of the adapter.
  void finish(const PreTrainedModel& model, const Adapter& adapter);

 private:
  std::map<std::string, at::Tensor> tensors_;
  std::string label_;
  std::set<std::string> taken_;
  std::vector<std::string> missing_, misshapen_;
};

}  // namespace graft::adapters
