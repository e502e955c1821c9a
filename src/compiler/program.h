// A captured function, compiled: what a call does once its guards hold.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "graft/compile.h"
#include "runtime/executable.h"
#include "runtime/fingerprint.h"
#include "runtime/prepared.h"
#include "verify/checked_program.h"

namespace graft {

/// The graphs of a capture that are compiled: all of it, or cut into forward and backward.
struct ProgramGraphs {
  ir::Graph forward;
  std::vector<size_t> forward_inputs;  ///< of the captured graph
  std::optional<ir::Graph> backward;
  std::vector<size_t> backward_inputs;  ///< that the backward part takes directly, after the saved values
  std::vector<size_t> read_again;       ///< of both, for calls of the forward part that run again
};
ProgramGraphs program_graphs(const Capture& capture, Backend backend);

/// What the forward part may do with its inputs and results.
Bindings forward_bindings(const Capture& capture, const ProgramGraphs& parts, const CompileOptions& options);

class Program final : public verify::CheckedProgram, public std::enable_shared_from_this<Program> {
 public:
  Program(const Capture& capture, const CompileOptions& options);

  const CapturedFunction& captured() const override { return captured_; }
  bool trains() const override { return backward_ != nullptr; }
  /// Whether a run may draw random numbers.
  bool draws() const { return draws_; }

  /// What the forward pass computes: the graph's forward results, and what the backward pass will need.
  struct ForwardPass {
    std::vector<at::Tensor> inputs;  ///< of the graph, without tangents
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> saved;
    std::vector<uint32_t> versions;  ///< of the inputs that the backward pass reads
    /// The tensors that gradients are for, where these are not the inputs themselves.
    std::vector<at::Tensor> leaves;
    /// Of saved values that are results, too, and so in the caller's hands.
    std::vector<std::pair<size_t, uint32_t>> saved_versions;
    /// What was in the memory that the backward pass reads to compute something again, where the caller can
    /// write to it: eager code has saved what it computed. By place among the saved values and these inputs.
    std::vector<std::pair<size_t, runtime::Fingerprint>> contents;
  };
  /// It may change the inputs that finish() would change.
  ForwardPass forward(std::vector<at::Tensor> inputs) const;
  /// Gradients, one for each of the capture's. Tangents may be undefined and of any strides.
  /// `last`: what was saved is not needed again, and goes as it is used. `sparse`: gradients that are sparse
  /// come as such; if not, as their values.
  std::vector<at::Tensor> backward(ForwardPass& pass, const std::vector<at::Tensor>& tangents,
                                   bool last = false, bool sparse = false) const;
  /// How many outputs have a gradient.
  size_t tangents() const { return tangent_types_.size(); }
  /// Whether the histories of two of them, in the function's own graph, have calls in common that saved
  /// something (autograd/common_history.h).
  bool have_saved_in_common(size_t one, size_t other) const { return saved_in_common_[one][other]; }
  /// Lets go of what only backward passes by `gone` tangents need.
  void keep_what_others_need(ForwardPass& pass, const std::vector<bool>& gone) const;
  std::vector<std::vector<bool>> partial_backwards() const override;
  /// One of these was made after the last watched call.
  bool has_unchecked_backward() const { return has_unchecked_.load(std::memory_order_acquire); }
  void note_checked(size_t partial_backwards) const override;

  /// Writes the new values of mutated inputs into them and gives the function's outputs, with history.
  std::vector<at::Tensor> finish(ForwardPass&& pass) const;

  /// The three above, for whoever compares them with eager code.
  std::unique_ptr<verify::CheckedRun> run_forward(std::vector<at::Tensor> inputs) const override;

  std::vector<const Executable*> executables() const;

 private:
  void note_contents(ForwardPass& pass) const;
  struct PartialBackward;
  void check_unchanged(const ForwardPass& pass, const PartialBackward* partial) const;
  void find_dependent_outputs();
  bool has_gradient_by(size_t tangent, const std::vector<at::Tensor>& leaves) const;
  void write_mutations(ForwardPass& pass) const;
  std::vector<at::Tensor> outputs_of(const ForwardPass& pass) const;
  void differentiate(const std::shared_ptr<ForwardPass>& pass, const std::vector<at::Tensor>& outputs,
                     const std::vector<at::Tensor>& leaves) const;
  void separate(const ForwardPass& pass, std::vector<at::Tensor>& outputs) const;
  void let_go(ForwardPass& pass) const;

  CapturedFunction captured_;
  bool draws_ = false;
  std::unique_ptr<Executable> forward_, backward_;
  /// Backward passes of calls some of whose outputs nobody used, by flags for these. Made when they are
  /// needed, from the graph.
  struct PartialBackward {
    std::unique_ptr<Executable> run;
    std::vector<ir::TensorType> zeros;  ///< inputs after all others
    std::vector<bool> needs;            ///< by input: it computes something from it
  };
  const PartialBackward& backward_without(const std::vector<bool>& absent) const;
  std::vector<std::vector<bool>> saved_in_common_;
  mutable std::map<std::vector<bool>, std::vector<bool>> needs_without_;  // inputs, by absent tangents
  CompileOptions options_;
  std::optional<ir::Graph> backward_graph_;
  mutable std::mutex partial_backwards_guard_;
  mutable std::map<std::vector<bool>, PartialBackward> partial_backwards_;
  mutable std::atomic<bool> has_unchecked_{false};
  std::vector<size_t> forward_inputs_, backward_inputs_;  // of the joint graph
  std::vector<size_t> read_again_;
  std::vector<ir::TensorType> tangent_types_;
  /// For each output with a gradient, in their order: the earlier or later ones that it is computed from.
  std::vector<std::vector<size_t>> computed_from_;
  /// Outputs that the program has in memory of others, or of inputs, and the function has not: they are
  /// copied. The same in every call, so they are looked for once.
  mutable std::once_flag looked_for_shared_;
  /// A result that outputs are pieces of.
  struct Base {
    size_t result;
    int64_t offset;  // where it begins in its memory
    bool shared;
  };
  mutable std::vector<bool> shared_;  // whether an output shares memory with others, or with an input
  mutable std::vector<Base> bases_;
};

}  // namespace graft
