// LoRA and DoRA: y = W x + scaling B A x, on linear, convolution and embedding layers.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method lora_method();

/// Fields of PEFT's LoraConfig, and of what builds on it, that ask for what graft does not have.
std::vector<Field> unsupported_lora_fields();

/// The ranges of "layer_replication"; none where it is not set, or the method has none.
std::vector<std::pair<int64_t, int64_t>> repeated_layers(const AdapterConfig& config);

/// The norm of each output's row of such a layer's weight, in the shape of DoRA's magnitude.
at::Tensor dora_norm(const nn::WeightedLayer& layer, const at::Tensor& weight);

/// What combining adapters needs to see of a LoRA part.
class LoraPart : public Part {
 public:
  explicit LoraPart(const PartBuild& build);

  void merge(Weights& weights) const override;
  bool scale(double factor) override;
  /// An adapter of a lower rank too: the rest is zeros, and stays so in training.
  bool can_take(const Part& other) const override;
  void take(const Part& other) override;
  bool silence() override;
  NamedTensors saved() const override;

  /// Room for a rank; an adapter may use less.
  int64_t rank() const { return A.size(0); }
  double scaling() const { return scaling_value_; }
  /// The matrices whose product the adapter adds: A and B, put together where they are stored otherwise.
  virtual std::pair<at::Tensor, at::Tensor> factors() const { return {A, B}; }
  /// The same as data of the program.
  const at::Tensor& scale_factor() const { return scaling_; }
  /// What the adapter adds to the layer's weight, in its shape. PEFT computes half precision in float32.
  at::Tensor delta_weight() const;

  /// Takes b a out of the layer's weight wherever this adapter works: PiSSA and OLoRA start from what they
  /// find there, and PEFT subtracts it from the base. Here the base stays as it is.
  void take_out(const at::Tensor& a, const at::Tensor& b);

  at::Tensor A, B, B_bias, magnitude;  ///< undefined where the adapter has none

 protected:
  /// scaling * (B A), [out, in] or in the convolution's shape, scaled.
  virtual at::Tensor product(const at::Tensor& a, const at::Tensor& b) const = 0;
  /// The magnitude's quotient in the shape that scales the weight.
  virtual at::Tensor factor_view(const at::Tensor& factor) const = 0;
  void finish(const PartBuild& build);
  /// The other's rank and scaling.
  void take_scaling(const Part& other);
  /// MiCA leaves B as it starts, and a router (Arrow) both.
  static bool trains_a(const PartBuild& build);
  static bool trains_b(const PartBuild& build);
  at::Tensor dropped(const at::Tensor& x) const;
  /// magnitude / norm(W + scaling B A), the norm taken as a constant, as the paper has it.
  at::Tensor dora_factor() const;
  at::Tensor norm_of_sum() const;

  at::Tensor scaling_;  // a tensor: another value is the same program
  at::Tensor taken_A_, taken_B_;
  double dropout_ = 0;
  int64_t r_ = 0;  // in use

 private:
  double scaling_value_ = 0;
};

}  // namespace graft::adapters
