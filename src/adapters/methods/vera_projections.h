// The frozen random projections that all layers of a VeRA or PVeRA adapter share.
#pragma once
#include "adapters/added_weight.h"

namespace graft::adapters {

/// One pair for all layers, as large as the largest needs it; a layer uses the first rows and columns.
class VeraProjections : public Shared {
 public:
  /// `prefix` is that of their names, "vera_"; A has so many times "r" rows, B has "r" columns.
  VeraProjections(std::string prefix, int64_t times, const AdapterConfig& config,
                  const std::vector<nn::WeightedLayer*>& layers, TensorSource& source);

  std::vector<Entry> entries() const override;

  at::Tensor A, B;

 private:
  std::string prefix_;
  bool saved_;
};

}  // namespace graft::adapters
