// Methods whose layers have several experts, of which each token takes its shares: a first call of the base,
// without adapters, shows the tokens to what decides.
#pragma once
#include "adapters/part.h"

namespace graft::adapters {

class Mixture : public Shared {
 public:
  /// What each token takes of each expert on each layer, [batch, tokens, layers, experts]; `hidden` is the
  /// base's last hidden state, [batch, tokens, width].
  virtual at::Tensor shares(const at::Tensor& hidden) const = 0;
};

/// Null for an adapter of another method.
inline Mixture* as_mixture(const std::shared_ptr<Shared>& shared) {
  return dynamic_cast<Mixture*>(shared.get());
}

}  // namespace graft::adapters
