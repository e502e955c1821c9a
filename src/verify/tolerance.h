// Compares what compiled code gave with what the eager function gave.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ir/graph.h"

namespace graft {

/// Empty when `got` is `want` up to the rounding that another order of operations may cause; else what
/// differs. Numbers: the largest difference may be a fraction of the largest value, by the coarser of their
/// dtype and the one that they were `computed_in`, and in each row a few times that fraction of the row's own
/// largest; whole numbers and flags must be the same, NaN and infinities must stand in the same places.
std::string difference(const at::Tensor& got, const at::Tensor& want,
                       at::ScalarType computed_in = at::kDouble);

/// Of the same shape: how many of them, from 0 to 1, lie further apart than that fraction of the largest.
double share_apart(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in = at::kDouble);

/// As many, at a kink, may part by how memory was laid out.
constexpr double few_at_a_kink = 0.01;

/// The floating dtype of a graph's values that rounds the most: its results are no better than that.
at::ScalarType coarsest_of(const ir::Graph& graph);

/// Whether `got` and `want` differ by rounding alone: `plain` and `precise` are the captured graph's own
/// results, over ATen in its precision and in double, `perturbed` those of runs with rounding put in (see
/// PreciseRuns). Eager must be as near to `plain` as rounding allows, else the capture is wrong and no
/// precision excuses it; `got` must be about as near to `precise` as the others are, as a whole and row by
/// row; the nearer, the coarser what the graph is `computed_in` (coarsest_of). Where ATen's kernels give NaN
/// or infinity and the exact result is another, that one is right, too. With `may_overflow` (see PreciseRuns)
/// places where either is NaN or infinite are not compared. A whole number or a flag must be one that some
/// run gave.
bool is_noise(const at::Tensor& got, const at::Tensor& want, const at::Tensor& plain,
              const at::Tensor& precise, const std::vector<at::Tensor>& perturbed, at::ScalarType computed_in,
              bool may_overflow = false);

/// The states of the random number generators a call may draw from, to run it twice on the same numbers.
class RandomState {
 public:
  RandomState() = default;  ///< of none
  RandomState(const std::vector<at::Generator>& generators, const std::vector<at::Tensor>& inputs);
  /// Others, which were in these states.
  void add(const std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states);
  void restore() const;
  bool empty() const { return saved_.empty(); }
  /// Whether the generators stand as they did.
  bool is_now() const;

 private:
  struct Saved {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Saved> saved_;
};

}  // namespace graft
