// The backward passes of one call of a compiled function: one by all its outputs, or one after the other by
// some of them, as autograd asks for them.
#pragma once
#include <mutex>
#include <vector>

#include "compiler/program.h"

namespace graft {

class BackwardCalls {
 public:
  /// Gradients come for some of the program's outputs: `tangent_of` says which of all they are.
  BackwardCalls(std::shared_ptr<const Program> program, std::shared_ptr<Program::ForwardPass> pass,
                std::vector<size_t> tangent_of);

  /// As in eager code, the `last` pass by an output lets go of what was saved for it. Outputs whose histories
  /// have nothing saved in common with it can be differentiated afterwards; others are an Error.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, bool last);

 private:
  using Flags = std::vector<bool>;  // by tangent
  bool is_gone(size_t tangent) const;

  std::mutex mutex_;  // two threads may differentiate two outputs
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Program::ForwardPass> pass_;
  std::vector<size_t> tangent_of_;
  Flags spent_;  // there was a last pass by it
};

}  // namespace graft
