// Stands in for src/distributed/gloo/ in a build without Gloo's headers.
#include "distributed/connected.h"

#include "graft/error.h"

namespace graft::dist {

std::shared_ptr<ProcessGroup> connect(const ProcessGroupOptions&) {
  throw Error(
      "[dist] this graft was built without Gloo, which several processes need; install libgloo-dev and "
      "rebuild");
}

std::unique_ptr<GradientSum> sum_gradients(const std::shared_ptr<ProcessGroup>&,
                                           const std::vector<std::pair<std::string, at::Tensor>>&) {
  return nullptr;  // there is never more than one process
}

std::unique_ptr<Shares> share(const std::shared_ptr<ProcessGroup>&, std::vector<at::Tensor>) {
  return nullptr;
}

}  // namespace graft::dist
