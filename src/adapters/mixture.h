// Methods whose layers have several experts, of which each token takes its shares: a first call, of the base
// or with shares that are given, shows the tokens to what decides.
#pragma once
#include "adapters/part.h"

namespace graft::adapters {

class Mixture : public Shared {
 public:
  /// What each token takes of each expert on each layer, [batch, tokens, layers, experts]; `hidden` is the
  /// first call's last hidden state, [batch, tokens, width].
  virtual at::Tensor shares(const at::Tensor& hidden) const = 0;
  /// What each token takes of every expert in the first call; 0: that is of the base alone.
  virtual double first_share() const { return 0; }
  /// The same as shares() gives it, for so many tokens.
  virtual at::Tensor first_shares(int64_t /*batch*/, int64_t /*tokens*/) const { return {}; }
};

/// Null for an adapter of another method.
inline Mixture* as_mixture(const std::shared_ptr<Shared>& shared) {
  return dynamic_cast<Mixture*>(shared.get());
}

}  // namespace graft::adapters
