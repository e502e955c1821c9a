// The two places parameters come from while a model is built: a checkpoint, or random initialisation.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "models/architecture.h"
#include "models/weights.h"

namespace graft {

/// Fresh weights by torch's default generator.
class RandomSource : public nn::ParameterSource {
 public:
  explicit RandomSource(at::TensorOptions options) : options_(options) {}
  at::Tensor parameter(const std::string& path, at::IntArrayRef shape, const nn::Init& init) override;
  at::Tensor buffer(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype,
                    double fill) override;
  at::Tensor tied(const std::string& path, const at::Tensor& shared) override { return shared; }
  at::TensorOptions options() const override { return options_; }

 private:
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

 private:
  /// The checkpoint's name for a parameter: itself, with the body's prefix added or taken away, or in an old
  /// spelling. Empty: not there.
  std::string locate(const std::string& path) const;
  at::Tensor take(const std::string& name, at::IntArrayRef shape, std::optional<at::ScalarType> dtype);
  bool may_be_left(const std::string& name) const;

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
