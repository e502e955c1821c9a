// For the partition's tests: joint graphs out of random calls, and a way to run any graph over plain numbers,
// in which every operator is some arithmetic of its own.
#pragma once
#include <vector>

#include "autograd/partition.h"

namespace graft::autograd {

struct RandomJoint {
  JointGraph joint;
  std::vector<size_t> mutated;
};

/// To be called inside of a rapidcheck property. The forward's calls come first; a call after them may take
/// tangents or, unless there are `only_gradients`, also nothing but the forward's values.
RandomJoint random_joint(bool only_gradients = false);

/// Results of the graph; an undefined one is 0. `drawn` counts the random numbers drawn, and is their source:
/// the n-th number is always the same.
std::vector<double> run_scalars(const ir::Graph& graph, const std::vector<double>& inputs, size_t& drawn);

/// Bytes of all that the calls which depend on a tangent, and the gradients, take from the others: views by
/// their base, each once, and of inputs only the mutated ones.
int64_t needed_bytes(const RandomJoint& made_up);

}  // namespace graft::autograd
