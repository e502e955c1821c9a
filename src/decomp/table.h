// The table of decompositions, filled family by family.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>

#include "decomp/builder.h"

namespace graft::decomp {

/// New values for the node's outputs (null: one that is not computed); an empty list leaves the node as it
/// is.
using Decomposition = std::function<std::vector<ir::Value*>(Builder&, const ir::Node&)>;
using Table = std::unordered_map<std::string, Decomposition>;

void add_reductions(Table& table);
void add_normalisations(Table& table);
void add_losses(Table& table);
void add_movement(Table& table);
void add_pooling(Table& table);
void add_upsampling(Table& table);

/// Every operator that has a decomposition; sorted.
std::vector<std::string> decomposed_operators();

}  // namespace graft::decomp
