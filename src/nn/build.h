// How modules get their parameters while they are built.
//
// A module is constructed once, with a Build that knows its path in the model ("model.layers.3.mlp") and
// where tensors come from: a checkpoint (no copy, no random numbers thrown away) or random initialisation. So
// there is no second "load" pass, and a parameter is never allocated twice.
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "graft/config.h"

namespace graft::nn {

/// How a fresh parameter is filled when no checkpoint gives it.
struct Init {
  /// sinusoidal: a table of positions, sines and cosines of falling frequency in turns (Vaswani et al. 2017).
  enum class Kind { normal, zeros, ones, kaiming_fan_out, uniform, constant, sinusoidal } kind = Kind::normal;
  /// Of a normal distribution; the bound, to both sides, of a uniform one; a constant's value.
  double std = 0.02;
  int64_t zero_row = -1;  ///< row set to zero: an embedding's padding_idx
};

/// Where parameters come from. Implementations: CheckpointSource, RandomSource (models/sources.h).
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual at::Tensor parameter(const std::string& path, at::IntArrayRef shape, const Init& init) = 0;
  /// A persistent buffer that keeps its own dtype when it is not floating point (batch counters).
  virtual at::Tensor buffer(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype,
                            double fill) = 0;
  /// The tensor at `path` of a pair that the config ties to `shared`. Gives `shared` unless the checkpoint
  /// holds another value there.
  virtual at::Tensor tied(const std::string& path, const at::Tensor& shared) = 0;
  virtual at::TensorOptions options() const = 0;
};

class Build {
 public:
  Build(ParameterSource& source, double init_std, std::string path = "")
      : source_(&source), init_std_(init_std), path_(std::move(path)) {}

  Build operator/(const std::string& name) const {
    return Build(*source_, init_std_, path_.empty() ? name : path_ + "." + name);
  }

  const std::string& path() const { return path_; }
  double init_std() const { return init_std_; }
  at::TensorOptions options() const { return source_->options(); }
  Init normal() const { return {Init::Kind::normal, init_std_}; }

  at::Tensor parameter(torch::nn::Module& owner, const std::string& name, at::IntArrayRef shape,
                       const Init& init) const;
  at::Tensor buffer(torch::nn::Module& owner, const std::string& name, at::IntArrayRef shape,
                    at::ScalarType dtype, double fill) const;
  at::Tensor tied(torch::nn::Module& owner, const std::string& name, const at::Tensor& shared) const;

  /// Builds the child module `name` of `owner` and registers it: child<Linear>(*this, "q_proj", in, out).
  template <class M, class... Args>
  std::shared_ptr<M> child(torch::nn::Module& owner, const std::string& name, Args&&... args) const {
    return owner.register_module(name, std::make_shared<M>(*this / name, std::forward<Args>(args)...));
  }

 private:
  ParameterSource* source_;
  double init_std_;
  std::string path_;
};

/// Base of graft's layers: a module that knows its path.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(const Build& b) : path_(b.path()) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Children named "0", "1", ...: transformers' ModuleList.
template <class M>
class List : public torch::nn::Module {
 public:
  template <class Make>
  List(const Build& b, int64_t count, Make make) {
    for (int64_t i = 0; i < count; ++i) {
      const auto name = std::to_string(i);
      items_.push_back(register_module(name, make(b / name, i)));
    }
  }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  M& operator[](size_t i) const { return *items_[i]; }

 private:
  std::vector<std::shared_ptr<M>> items_;
};

}  // namespace graft::nn
