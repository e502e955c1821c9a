// What a program computes from weights alone need not be computed in every call: the norms of DoRA, the
// rotations of OFT, the sum of a product of factors, weights laid side by side. The graph is cut into the
// part that depends on the call and groups that do not; a group is run again when one of its weights has
// changed.
//
//   %2 = aten::mm(%b, %a)                group 0: %2 = aten::mm(%b, %a)
//   %3 = aten::mul(%w, %2)          ->            %3 = aten::mul(%w, %2)
//   %4 = aten::mm(%x, t(%3))             main:    %4 = aten::mm(%x, t(%3)), %3 an input
#pragma once
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graft::passes {

struct Folding {
  /// Takes the inputs of the whole, then the values of all groups.
  ir::Graph main;
  /// Groups have no value in common. Equal ones have equal texts.
  struct Group {
    ir::Graph graph;
    std::vector<size_t> inputs;   ///< of the whole
    std::vector<size_t> results;  ///< among the inputs of `main`
  };
  std::vector<Group> groups;
};

/// `frozen` are inputs that seldom change. What is kept is at most `percent` of their own size: where there
/// is more to keep, the largest values are left to the call. Nothing where nothing is worth being kept.
std::optional<Folding> fold_weights(const ir::Graph& graph, const std::vector<size_t>& frozen,
                                    int64_t percent);

}  // namespace graft::passes
