#include "train/adafactor.h"

#include <ATen/ATen.h>

#include <cmath>

namespace graft::train {
namespace {

// transformers' defaults.
constexpr double kEps = 1e-30, kClip = 1, kDecayRate = -0.8;

at::Tensor root_mean_square(const at::Tensor& x) {
  return at::linalg_vector_norm(x) / std::sqrt(static_cast<double>(x.numel()));
}

/// The square of a matrix's gradient is kept as its means over rows and over columns; that of a vector as it
/// is.
struct Kept {
  at::Tensor rows, columns, squares, step;
};

/// The gradient divided by the root of its average square.
at::Tensor normalised(const at::Tensor& gradient, const Kept& kept, double keep) {
  const auto square = gradient.square() + kEps;
  if (kept.squares.defined()) {
    kept.squares.mul_(keep).add_(square, 1 - keep);
    return kept.squares.rsqrt().mul_(gradient);
  }
  kept.rows.mul_(keep).add_(square.mean(-1), 1 - keep);
  kept.columns.mul_(keep).add_(square.mean(-2), 1 - keep);
  const auto by_row = (kept.rows / kept.rows.mean(-1, /*keepdim=*/true)).rsqrt_().unsqueeze(-1);
  const auto by_column = kept.columns.unsqueeze(-2).rsqrt();
  return by_row.mul(by_column).mul_(gradient);
}

class Adafactor : public Optimizer {
 public:
  Adafactor(double weight_decay, const std::vector<Trained>& tensors)
      : decay_(weight_decay), tensors_(tensors) {
    for (const auto& each : tensors_) {
      const auto& tensor = each.tensor;
      const auto options = tensor.options().dtype(at::kFloat);
      Kept kept{.step = at::zeros({}, options)};
      if (tensor.dim() >= 2) {
        auto shape = tensor.sizes().vec();
        const auto width = shape.back();
        shape.pop_back();
        kept.rows = at::zeros(shape, options);
        shape.back() = width;
        kept.columns = at::zeros(shape, options);
      } else {
        kept.squares = at::zeros(tensor.sizes(), options);
      }
      kept_.push_back(std::move(kept));
    }
  }

  void step(const std::vector<at::Tensor>& gradients, double learning_rate) override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const auto& kept = kept_[i];
      kept.step.add_(1);
      const double keep = 1 - std::pow(kept.step.item<double>(), kDecayRate);
      auto update = normalised(gradients[i].to(at::kFloat), kept, keep);
      update.div_((root_mean_square(update) / kClip).clamp_min(1.0)).mul_(learning_rate);
      auto parameter = tensors_[i].tensor;
      auto wide = parameter.to(at::kFloat);
      if (decay_ != 0 && tensors_[i].decays) wide = wide - wide * (decay_ * learning_rate);
      parameter.copy_(wide - update);
    }
  }

  NamedTensors state() const override {
    NamedTensors all;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto& name = tensors_[i].name;
      const auto& kept = kept_[i];
      for (const auto& [key, tensor] : {std::pair("exp_avg_sq_row.", kept.rows),
                                        {"exp_avg_sq_col.", kept.columns},
                                        {"exp_avg_sq.", kept.squares},
                                        {"step.", kept.step}})
        if (tensor.defined()) all.emplace_back(key + name, tensor);
    }
    return all;
  }

 private:
  double decay_;
  std::vector<Trained> tensors_;
  std::vector<Kept> kept_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(double weight_decay, const std::vector<Trained>& tensors) {
  return std::make_unique<Adafactor>(weight_decay, tensors);
}

}  // namespace graft::train
