// A captured function, compiled: what a call does once its guards hold.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "graft/compile.h"
#include "runtime/executable.h"

namespace graft {

/// The graphs of a capture that are compiled: all of it, or cut into forward and backward.
struct Parts {
  ir::Graph forward;
  std::vector<size_t> forward_inputs;  ///< of the captured graph
  std::optional<ir::Graph> backward;
  std::vector<size_t> backward_inputs;  ///< that the backward part takes directly, after the saved values
};
Parts parts_of(const Capture& capture, Backend backend);

class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(const Capture& capture, const CompileOptions& options);

  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>>& outside() const { return outside_; }
  bool trains() const { return backward_ != nullptr; }

  /// What the forward pass computes: the graph's forward results, and what the backward pass will need.
  /// Nothing is changed by it, unless asked for.
  struct Pass {
    std::vector<at::Tensor> inputs;  ///< of the graph, without tangents
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> saved;
    std::vector<uint32_t> versions;  ///< of the inputs that the backward pass reads
  };
  /// With `in_place` it may change the inputs that finish() would change.
  Pass forward(std::vector<at::Tensor> inputs, bool in_place = false) const;
  /// Gradients, one for each of the capture's. Tangents may be undefined and of any strides.
  /// `last`: what was saved is not needed again, and goes as it is used.
  std::vector<at::Tensor> backward(Pass& pass, const std::vector<at::Tensor>& tangents,
                                   bool last = false) const;

  /// Writes the new values of mutated inputs into them and gives the function's outputs, with history.
  std::vector<at::Tensor> finish(Pass&& pass) const;

  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Mutation>& mutations() const { return mutations_; }
  const std::vector<Gradient>& gradients() const { return gradients_; }
  const std::vector<at::Generator>& generators() const { return generators_; }
  size_t forward_results() const { return forward_results_; }
  std::vector<const Executable*> executables() const;
  const ir::Graph& captured_graph() const { return captured_; }

 private:
  bool mutated(size_t input) const;

  ir::Graph captured_;
  std::vector<Source> sources_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outside_;
  std::vector<at::Generator> generators_;
  std::vector<Output> outputs_;
  std::vector<Mutation> mutations_;
  std::vector<Gradient> gradients_;
  size_t forward_results_ = 0;
  std::unique_ptr<Executable> forward_, backward_;
  std::vector<size_t> forward_inputs_, backward_inputs_;  // of the joint graph
  std::vector<ir::TensorType> tangent_types_;
};

}  // namespace graft
