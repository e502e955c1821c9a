// The two places parameters come from while a model is built: a checkpoint, or random initialisation.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "models/architecture.h"
#include "models/weights.h"

namespace graft {

/// A model's own tensors as files hold them: under their names there, several joined where files join them.
NamedTensors stored_tensors(const Architecture& architecture, const NamedTensors& own);

/// The other way: the tensor at `path` out of a checkpoint that was written so.
at::Tensor tensor_at(const Architecture& architecture, const Checkpoint& checkpoint, const std::string& path);

/// Fresh weights by torch's default generator.
class RandomSource : public nn::ParameterSource {
 public:
  RandomSource(const Architecture& architecture, at::TensorOptions options)
      : architecture_(architecture), options_(options) {}
  at::Tensor parameter(const std::string& path, at::IntArrayRef shape, const nn::Init& init) override;
  at::Tensor buffer(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype,
                    double fill) override;
  at::Tensor tied(const std::string& path, const at::Tensor& shared) override { return shared; }
  at::TensorOptions options() const override { return options_; }

 private:
  const Architecture& architecture_;
  at::TensorOptions options_;
};

/// Takes tensors out of a checkpoint, on the spot: a view of the mapped file where dtype and device already
/// fit.
class CheckpointSource : public nn::ParameterSource {
 public:
  struct Wanted {
    at::TensorOptions options;
    bool initialise_missing = false;
    bool ties = false;
    std::function<void(int64_t, int64_t)> progress = {};
  };
  CheckpointSource(const Weights& checkpoint, const Architecture& architecture, Wanted wanted);

  at::Tensor parameter(const std::string& path, at::IntArrayRef shape, const nn::Init& init) override;
  at::Tensor buffer(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype,
                    double fill) override;
  at::Tensor tied(const std::string& path, const at::Tensor& shared) override;
  at::TensorOptions options() const override { return wanted_.options; }

  /// After building: FormatError listing weights that are missing, of the wrong shape, or that nobody took.
  void finish() const;
  /// What the checkpoint lacks.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  /// The checkpoint's name for a parameter: itself, with the body's prefix added or taken away, or in an old
  /// spelling. Empty: not there.
  std::string locate(const std::string& path) const;
  at::Tensor take(const std::string& name, at::IntArrayRef shape, std::optional<at::ScalarType> dtype);
  /// A part of a tensor that files hold joined; undefined where this is none or the file has none.
  at::Tensor take_joined(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype);
  at::Tensor entered(const at::Tensor& tensor, at::ScalarType dtype);
  bool may_be_left(const std::string& name) const;
  /// In the place of a weight that is missing or misshapen, until finish() tells of it: of that shape, in
  /// next to no memory, since the sizes of a broken config.json have no bounds. Tells of it at once where a
  /// shape is beyond a checkpoint's means or more weights are wrong than the checkpoint has.
  at::Tensor stand_in(at::IntArrayRef shape, at::ScalarType dtype) const;

  const Weights& checkpoint_;
  const Architecture& architecture_;
  Wanted wanted_;
  RandomSource fresh_;
  bool checkpoint_has_prefix_ = false;
  int64_t done_bytes_ = 0;
  std::set<std::string> taken_;
  std::vector<std::string> missing_, misshapen_;
};

}  // namespace graft
