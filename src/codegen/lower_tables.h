// The table of operators that a kernel can compute, filled family by family.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/lowering.h"

namespace graft::codegen {

/// The dtype in which a node's result is computed.
inline ir::DType out(const ir::Node& node) { return in_register(node.output().type().dtype); }

struct LowerEntry {
  Lower lower;
  /// Where the lowering is for some calls only (floating numbers, say); empty: for all.
  std::function<bool(const ir::Node&)> applies = {};
};
using LowerTable = std::unordered_map<std::string, LowerEntry>;

void add_pointwise(LowerTable& table);
void add_creation(LowerTable& table);
void add_movement(LowerTable& table);

/// Every operator of the tables, and every reduction that a kernel can do; sorted.
std::vector<std::string> lowered_operators();

}  // namespace graft::codegen
