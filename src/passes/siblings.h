// Products of one matrix with several weights, and how they become one product with all weights, one below
// the other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graft::passes {

struct Sibling {
  ir::Node* product;  ///< x @ t(weight), and nothing is added
  ir::Value* x;
  ir::Value* weight;  ///< [width, inner], row-major
  ir::Dim width;
  ir::Node* adapters = nullptr;  ///< graft::low_rank_add, which alone reads the product, or none

  /// What others read.
  ir::Value& result() const { return adapters ? adapters->output() : product->output(); }
};

std::optional<Sibling> sibling_of(ir::Node& node);

/// Whether all that is done with its product can be done with some columns of a wider one: a view of it must
/// be one there, too, and results of the graph have strides that a caller can see.
bool can_be_columns(const Sibling& sibling, const ir::Graph& graph);

/// One product with the weight that `op` makes of `rows`, and columns of it in place of each sibling's, or of
/// what adapters make of it. Each x is the same matrix, if not the same value. Other siblings stay good, also
/// where their x was a product that is joined.
void join(ir::Graph& graph, const std::vector<Sibling>& siblings, const std::string& op,
          const ir::ValueList& rows);

}  // namespace graft::passes
