// Calls that write into memory that is planned for them: products, and operators of our own.
#pragma once
#include <optional>

#include "ir/graph.h"
#include "runtime/work.h"

namespace graft::runtime {

enum class Planned : uint8_t { mm, bmm, addmm, operator_into };

/// None: the call makes its own tensors.
std::optional<Planned> planned_call(const ir::Node& node);

/// What a planned call adds its product to; null: nothing.
const ir::Value* added_to(const ir::Node& node);

Product product_of(Planned planned);

}  // namespace graft::runtime
