// What the judges need of a compiled program; compiler/program.h implements it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "capture/capture.h"

namespace graft::verify {

/// One run of the program, by the path of all calls. Call backward(), if at all, before finish().
class CheckedRun {
 public:
  CheckedRun() = default;
  virtual ~CheckedRun() = default;
  CheckedRun(const CheckedRun&) = delete;
  CheckedRun& operator=(const CheckedRun&) = delete;

  /// The captured graph's forward results.
  virtual const std::vector<at::Tensor>& results() const = 0;
  /// Gradients, one for each of the capture's. A tangent that is undefined belongs to an output nobody uses.
  virtual std::vector<at::Tensor> backward(const std::vector<at::Tensor>& tangents) = 0;
  /// Writes the new values of mutated inputs into them, and gives the function's outputs with their history,
  /// which leads to `leaves`: one for each of the capture's gradients.
  virtual std::vector<at::Tensor> finish(std::vector<at::Tensor> leaves) = 0;
};

class CheckedProgram {
 public:
  CheckedProgram() = default;
  virtual ~CheckedProgram() = default;
  CheckedProgram(const CheckedProgram&) = delete;
  CheckedProgram& operator=(const CheckedProgram&) = delete;

  /// What it was made from.
  virtual const CapturedFunction& captured() const = 0;
  /// Whether it has a backward pass.
  virtual bool trains() const = 0;
  /// The backward passes there are for calls some of whose outputs nobody used: for each of them a flag for
  /// every tangent that is absent.
  virtual std::vector<std::vector<bool>> partial_backwards() const = 0;
  /// So many of these have been compared with eager code, all there were.
  virtual void note_checked(size_t partial_backwards) const = 0;

  /// Takes the graph's inputs without tangents. It may change the inputs that finish() would change.
  virtual std::unique_ptr<CheckedRun> run_forward(std::vector<at::Tensor> inputs) const = 0;
};

}  // namespace graft::verify
