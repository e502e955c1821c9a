// Rotary position embedding (Su et al. 2021) with the scalings that checkpoints use.
#pragma once
#include "graft/config.h"
#include "nn/build.h"

namespace graft::nn {

/// cos and sin, each [batch or 1, seq, rotary_dim].
struct Rotation {
  at::Tensor cos, sin;
};

/// What an architecture takes where its config says nothing.
struct RopeDefaults {
  int64_t positions = 2048;  ///< of `max_position_embeddings`
  /// Which part of a head rotates, its first numbers; none where an architecture knows whole heads only.
  std::optional<double> partial_factor = {};
  /// The trained length, where the architecture says it by a field of its own (Phi-3).
  std::optional<int64_t> original_positions = {};
  bool renamed_longrope = false;  ///< "su" and "yarn" mean "longrope" (Phi-3)
  // Names before `rope_parameters`, where they are the architecture's own.
  const char* theta_key = "rope_theta";
  const char* partial_key = "partial_rotary_factor";
};

/// Frequencies by `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling` (before). Holds no
/// state that a call changes: with "dynamic" scaling the frequencies follow from the call's own longest
/// position, never from what an earlier call had.
class RotaryEmbedding : public torch::nn::Module {
 public:
  RotaryEmbedding(const Build& b, const Config& config, int64_t head_dim, const RopeDefaults& defaults = {});
  /// In `like`'s dtype and on its device; the angles are computed in float32.
  Rotation forward(const at::Tensor& like, const at::Tensor& position_ids);
  /// Up to how many positions a token's rotation is the same whatever else a call holds; none where it always
  /// is. With "dynamic" scaling and LongRoPE the frequencies change for all tokens of a call whose longest
  /// position is past the trained length.
  std::optional<int64_t> rotation_limit() const;

 private:
  at::Tensor dynamic_frequencies(const at::Tensor& position_ids) const;

  at::Tensor inv_freq_, long_inv_freq_;  // the second for calls that go beyond the trained positions
  bool dynamic_ = false;
  double theta_ = 0, factor_ = 1, attention_factor_ = 1;
  int64_t dim_ = 0, max_positions_ = 0, trained_positions_ = 0;
};

/// Rotates x [batch, heads, seq, head_dim], halves paired (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin).
/// What of a head is beyond the rotation stays as it is.
at::Tensor rotate(const at::Tensor& x, const Rotation& by);

}  // namespace graft::nn
