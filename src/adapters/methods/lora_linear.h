// LoRA on linear layers, of either spelling: what plain LoRA, DoRA and the variants are made of.
#pragma once
#include "adapters/methods/lora.h"

namespace graft::adapters {

class LoraLinear : public LoraPart {
 public:
  explicit LoraLinear(const PartBuild& build);

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override;
  Joint joint() const override;

 protected:
  /// In how many blocks along the diagonal each factor is stored; the rest of it is zeros.
  struct Blocks {
    int64_t a = 1, b = 1;
  };
  /// Not filled yet: who derives calls finish().
  LoraLinear(const PartBuild& build, Blocks blocks);

  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const override;
  at::Tensor factor_view(const at::Tensor& factor) const override;
  /// A x, and B of what comes out of it; of x after the dropout.
  virtual at::Tensor narrowed(const at::Tensor& x) const;
  virtual at::Tensor spread(const at::Tensor& low) const;
  /// What the adapter adds to the layer's result, scaled, for x after the dropout; without taken().
  at::Tensor low_rank(const at::Tensor& x) const;
  /// What the layer's result has too much where the adapter goes with a changed base; see take_out().
  at::Tensor without_taken(const at::Tensor& y, const at::Tensor& x) const;

 private:
  at::Tensor dora(const at::Tensor& x, const at::Tensor& y) const;
};

}  // namespace graft::adapters
