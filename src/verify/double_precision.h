// A graph in double precision: what rounding_noise.h judges by when compiled code and eager differ by what
// might be rounding.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/clone.h"
#include "ir/graph.h"

namespace graft::verify {

/// A graph's results over ATen, in its own precision and with every floating number widened to float64.
/// Random numbers are those of the first run, from the generators as they stand.
class DoublePrecisionRuns {
 public:
  DoublePrecisionRuns(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Generator>& generators);

  /// Empty, both, where some operator has no such form.
  const std::vector<at::Tensor>& plain() const { return plain_; }
  const std::vector<at::Tensor>& precise() const { return precise_; }

  /// Whether a sum has terms so large that they add up to infinity in some order of them, and in another to a
  /// number, or with two infinities to NaN.
  bool may_overflow() const { return may_overflow_; }

  /// One more run in double, in which every value is off by what rounding in its original dtype may do, at
  /// random (from its own generator): how far a result can move without anybody being wrong. One run
  /// of another order of operations does not tell. At a kink (ReLU's gradient near 0) it may lie on the same
  /// side as the exact result by luck, and then shows no rounding where others show much.
  std::vector<at::Tensor> perturbed() const;

 private:
  /// Makes the precise run.
  void find_overflows(const std::vector<at::Generator>& generators);
  /// The graph in double once more, taken apart into the operators that kernels are made of.
  void find_parts(const ir::Graph& graph);
  /// By the dtypes of the values that the map leads from.
  void note_units(const ir::ValueMap& map);

  mutable at::Generator generator_;
  ir::Graph wide_;
  std::optional<ir::Graph> parts_;  // for perturbed(), if there is one: what is rounded inside of an operator
  std::vector<at::Tensor> wide_inputs_, plain_, precise_;
  bool may_overflow_ = false;
  std::unordered_map<const ir::Value*, double> rounding_;  // by value of wide_ and of parts_; relative
};

}  // namespace graft::verify
