// Makes the calls of a trace again, as eager code makes them.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "capture/trace.h"

namespace graft {

class TraceRun {
 public:
  /// Told of what a call gave; gives the object that stands for it from now on.
  using Made = std::function<at::Tensor(uint32_t number, at::Tensor made)>;

  /// `inputs`: of the trace's; `made`: what calls before the first have given, as far as it is needed.
  TraceRun(const Trace& trace, std::vector<at::Tensor> inputs, std::vector<at::Tensor> made = {});

  /// Calls `first` up to `last`.
  void run(size_t first, size_t last, const Made& made = {});
  const at::Tensor& tensor(const Trace::Ref& ref) const;

 private:
  torch::jit::Stack arguments_of(const Trace::Call& call) const;

  const Trace& trace_;
  std::vector<at::Tensor> inputs_, made_;
};

}  // namespace graft
