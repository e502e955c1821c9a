// One adapter on a model: built from a configuration, fresh or from its file.
#pragma once
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
  size_t slot = 0;
  bool trainable = true;
  std::shared_ptr<Shared> shared;
  std::vector<Placed> parts;

  struct Named {
    std::string key;
    at::Tensor tensor;
    bool trainable, saved;
  };
  /// All its tensors by their names in its file.
  std::vector<Named> tensors() const;
  /// What its file gets.
  NamedTensors stored() const;
};

/// Nothing of the model is changed.
std::unique_ptr<Adapter> build_adapter(const std::string& name, const AdapterConfig& config,
                                       const PreTrainedModel& model, TensorSource& source);

/// For an adapter that is made now.
class FreshSource : public TensorSource {
 public:
  at::Tensor take(const std::string&, at::IntArrayRef) override { return {}; }
  at::Tensor take_if_there(const std::string&, at::IntArrayRef) override { return {}; }
  bool fresh() const override { return true; }
};

/// An adapter's file. Every tensor of it must be taken, and have the shape that is asked for.
class FileSource : public TensorSource {
 public:
  FileSource(const std::filesystem::path& dir, std::optional<at::ScalarType> dtype);
  at::Tensor take(const std::string& key, at::IntArrayRef shape) override;
  at::Tensor take_if_there(const std::string& key, at::IntArrayRef shape) override;
  bool fresh() const override { return false; }
  /// FormatError listing what is missing, of the wrong shape, or was taken by nobody. `model` has the weights
  /// that PEFT saves along with an adapted embedding: those are no part of the adapter.
  void finish(const PreTrainedModel& model);

 private:
  Checkpoint file_;
  std::string label_;
  std::optional<at::ScalarType> dtype_;
  std::set<std::string> taken_;
  std::vector<std::string> missing_, misshapen_;
};

}  // namespace graft::adapters
