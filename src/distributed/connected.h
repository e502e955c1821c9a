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

/// Everybody's shares of something, on their way.
class Fetch {
 public:
  virtual ~Fetch() = default;
  virtual void wait() = 0;
};

/// What each process keeps for all. Any of them fetches a piece whenever it needs it: unlike in a collective
/// call the others need not do the same at the same time, so that one may compile, evaluate, or have no rows.
class Shares {
 public:
  virtual ~Shares() = default;
  /// Row r of `into` becomes the piece of process r. The same piece is not fetched twice at a time.
  virtual std::unique_ptr<Fetch> fetch(size_t piece, const at::Tensor& into) = 0;
};

/// For all processes to call, each with its own pieces, alike in number, sizes and dtypes. They must go
/// together, when none needs them any more. Nothing for a group of one.
std::unique_ptr<Shares> share(const std::shared_ptr<ProcessGroup>& group, std::vector<at::Tensor> pieces);

/// Nothing for a group of one.
std::unique_ptr<GradientSum> sum_gradients(const std::shared_ptr<ProcessGroup>& group,
                                           const std::vector<std::pair<std::string, at::Tensor>>& parameters);

}  // namespace graft::dist
