// What a matrix product multiplies, adds and scales, whichever operator says it.
#pragma once
#include <optional>

#include "ir/graph.h"

namespace graft::ir {

/// alpha * a @ b, or beta * added + alpha * a @ b.
struct Product {
  Value* a;                ///< [m, k], of a batch [n, m, k]
  Value* b;                ///< [k, p], of a batch [n, k, p]
  Value* added = nullptr;  ///< of any shape that broadcasts to the result's; null: nothing is added
  double beta = 1, alpha = 1;
  bool batched = false;

  bool is_scaled() const { return alpha != 1 || beta != 1; }
};

/// Takes apart aten::mm, bmm, addmm and baddbmm. Nothing for any other node, and for one that lacks an
/// argument or has a scale that is not a number.
std::optional<Product> as_product(const Node& node);

}  // namespace graft::ir
