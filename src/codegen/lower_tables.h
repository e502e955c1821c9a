// The table of operators that a kernel can compute, filled family by family.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
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
void add_elementary(LowerTable& table);
void add_activations(LowerTable& table);
void add_creation(LowerTable& table);
void add_movement(LowerTable& table);
void add_resampling(LowerTable& table);
/// After those, beside some of which it has its own.
void add_whole(LowerTable& table);

/// Whether it reads its argument where its own place says, by arithmetic: that must lie in memory.
bool reads_by_place(const ir::Node& node);

/// x[:, i, j]: the indices' common shape stands in the result where they stand, or in front if they are
/// apart.
struct IndexShape {
  std::vector<int64_t> sizes;  ///< of the common shape
  size_t front = 0;            ///< where it begins in the result
  size_t last = 0;             ///< the last dimension of x that has an index
  bool together = true;
};
IndexShape index_shape(const ir::ValueList& indices);
/// Whether the indices are whole numbers, as opposed to masks.
bool index_applies(const ir::Node& node);
/// Where in x the element at a place of x[:, i, j] lies.
std::pair<Place, std::vector<Instruction::Indirect>> indexed_place(Lowering& lowering, const ir::Value& table,
                                                                   const ir::ValueList& indices,
                                                                   const Place& place);

/// Every operator of the tables, and every reduction and scatter that a kernel can do; sorted.
std::vector<std::string> lowered_operators();

}  // namespace graft::codegen
