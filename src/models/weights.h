// What a model can be filled from: tensors under transformers' names, whatever the files call them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graft/safetensors.h"

namespace graft {

class Weights {
 public:
  virtual ~Weights() = default;
  virtual const std::vector<std::string>& names() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  virtual at::Tensor tensor(std::string_view name) const = 0;
  /// Of all tensors, as tensor() gives them.
  virtual uint64_t total_bytes() const = 0;
  /// The dtype of the first floating tensor; none where there is none.
  virtual std::optional<at::ScalarType> dtype() const = 0;
};

/// safetensors.
class CheckpointWeights final : public Weights {
 public:
  explicit CheckpointWeights(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  const std::vector<std::string>& names() const override { return checkpoint_.names(); }
  bool contains(std::string_view name) const override { return checkpoint_.contains(name); }
  at::Tensor tensor(std::string_view name) const override { return checkpoint_.tensor(name); }
  uint64_t total_bytes() const override { return checkpoint_.total_bytes(); }
  std::optional<at::ScalarType> dtype() const override;

 private:
  Checkpoint checkpoint_;
};

/// A checkpoint's weights: a folder, a file of safetensors or an index of them, a .gguf file.
std::unique_ptr<Weights> open_weights(const std::filesystem::path& path);

}  // namespace graft
