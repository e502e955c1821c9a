// Operators that add elements to a tensor at places that are data (the gradients of embeddings, gathers and
// indexing), or put them there.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/lowering.h"

namespace graft::codegen {

struct Scatter {
  std::vector<int64_t> sizes;   ///< of what is added
  std::vector<int64_t> walked;  ///< its dimensions along which several elements may have one place
  const ir::Value* onto;        ///< what the result is before; null: zeros
  /// The element there, to where it belongs. Of several that are put at one place the last one stays, as in
  /// ATen on one thread.
  std::function<void(Lowering&, const Place&)> add;
};

/// How the node does it, if it is such a one and a kernel can.
std::optional<Scatter> scatter_of(const ir::Node& node);

/// Names of all of those.
std::vector<std::string> scatter_operators();

}  // namespace graft::codegen
