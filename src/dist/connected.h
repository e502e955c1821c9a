// A group of several processes: what stands behind the public interface.
#pragma once
#include "graft/process_group.h"

namespace graft::dist {

/// By Gloo; Error in a build without it.
std::shared_ptr<ProcessGroup> connect(const ProcessGroupOptions& options);

/// Sums the gradients of parameters over all processes while backward still runs, by torch's Reducer.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// Backward from `loss`, whose gradient is `weight`, that leaves the sums in the parameters' grad. Batches
  /// that are accumulated are summed once: only the last of them comes here.
  virtual void backward(const at::Tensor& loss, const at::Tensor& weight) = 0;
};

/// Nothing for a group of one.
std::unique_ptr<GradientSum> sum_gradients(const std::shared_ptr<ProcessGroup>& group,
                                           const std::vector<std::pair<std::string, at::Tensor>>& parameters);

}  // namespace graft::dist
