// Cuts the joint graph of a forward and its backward into two, so that as few bytes as possible wait between
// them: a value that the backward needs is saved, or computed again where that is cheap.
//
//   joint(x, w, t)          forward(x, w)            backward(h, t)
//     h = mm(x, w)            h = mm(x, w)             s = sigmoid(h)     run again: h is needed anyway
//     s = sigmoid(h)          s = sigmoid(h)           a = mul(t, s)
//     y = mul(h, s)           y = mul(h, s)            b = mul(t, h)
//     a = mul(t, s)           return (y | h)           return (a, b)
//     b = mul(t, h)
//     return (y | a, b)
//
// This is the idea of functorch's min_cut_rematerialization_partition; saved_values.h says which cut is
// taken. A `zeros_like` needs its argument as any other call does: let the decompositions that know shapes go
// first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ir/graph.h"

namespace graft::autograd {

struct JointGraph {
  ir::Graph graph;
  /// How many of the first results are the forward's: its outputs and the new contents of what it mutates.
  /// The rest are gradients.
  size_t forward_results = 0;
  /// Those inputs, by index, that exist only in the backward.
  std::vector<size_t> tangent_inputs;
};

struct PartitionOptions {
  /// Joint inputs that the caller overwrites after the forward (with a result of it). Where the backward
  /// needs their old contents, the forward saves a clone.
  std::vector<size_t> mutated_inputs = {};
  /// False: only views and creations are computed again, and all else that the backward needs is saved.
  bool recompute = true;
  /// True: computes again also what no kernel of the backward can take in passing, because a matrix product
  /// or the like reads it from memory. Fewer bytes are saved, and the backward writes more.
  bool recompute_materialized = false;
  /// Whether a call is one of a library, which costs as much the second time, whatever it computes: it is
  /// saved from, not run again. Empty: none is. (Views and creations are not asked about.)
  std::function<bool(const ir::Node&)> is_library_call = {};
};

struct Partition {
  /// Takes the joint inputs `forward_inputs`, those that it uses. Gives the joint graph's first results, then
  /// `saved` more.
  ir::Graph forward;
  std::vector<size_t> forward_inputs;
  size_t saved = 0;
  /// Takes the saved values, then the joint inputs `backward_inputs` as they are, then all tangents in the
  /// order given. Gives the gradients.
  ir::Graph backward;
  std::vector<size_t> backward_inputs;
  /// Those of the backward's first inputs (saved values, then joint inputs) that calls of the forward read
  /// which run again there: what is in their memory by then decides what these give.
  std::vector<size_t> read_again;

  int64_t saved_bytes = 0;  // memory of the saved values
  size_t recomputed = 0;    // calls, views not counted, that run in both
};

/// Both graphs verify, keep the order and the scopes of the joint graph, and have no dead calls. What
/// ir::must_run holds for runs once: in the forward unless it depends on a tangent or comes after the
/// forward's last call and the first that depends on one. A call computed again stands right before its first
/// use. Saved are never views but their bases, once. UsageError for indices that do not exist, a forward
/// result that depends on a tangent, and a mutated input with gaps or overlaps in memory that would have to
/// be cloned.
Partition partition(const ir::Graph& joint, size_t forward_results, const std::vector<size_t>& tangent_inputs,
                    const PartitionOptions& options = {});

inline Partition partition(const JointGraph& joint, const PartitionOptions& options = {}) {
  return partition(joint.graph, joint.forward_results, joint.tangent_inputs, options);
}

}  // namespace graft::autograd
