// What LoHa and LoKr have in common: a weight's change built from small tensors, a scaling, and two kinds of
// dropout.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

class LycorisPart : public Part {
 public:
  explicit LycorisPart(const PartBuild& build, bool scales_rank_dropout);

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override;
  void merge(Weights& weights) const override;
  bool scale(double factor) override;

 protected:
  /// What the adapter adds to the layer's weight, in its shape, before scaling.
  virtual at::Tensor delta_weight() const = 0;
  /// What it adds to the layer's output, before scaling.
  virtual at::Tensor delta(const at::Tensor& x) const { return layer().apply(x, delta_weight(), {}); }
  virtual at::ScalarType dtype() const = 0;

  int64_t r_ = 0;

 private:
  /// PEFT's dropouts take away the whole adapter, or rows of its weight: channels of what it adds.
  at::Tensor dropped(at::Tensor added) const;

  at::Tensor scaling_;  // a tensor: another value is the same program
  double scaling_value_ = 0, rank_dropout_ = 0, module_dropout_ = 0;
  bool scales_rank_dropout_;
};

/// The layer is one of those that LoHa and LoKr can be put on: linear or convolution, not Conv1D.
void check_lycoris_layer(const PartBuild& build);

/// A kernel in CP form (FedPara, proposition 3): sum over i, j of core[i, j, h, w] a[i, out] b[j, in], as
/// [out, in * h * w].
at::Tensor cp_kernel(const at::Tensor& core, const at::Tensor& a, const at::Tensor& b);

/// Whether a convolution's kernel is to have that form: a kernel of 1x1 is a matrix anyway.
bool has_cp_kernel(const PartBuild& build);

}  // namespace graft::adapters
