// Functions of one number that a product can apply to its results before they are written.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/fusion.h"
#include "codegen/predicates.h"
#include "ir/graph.h"

namespace graft::runtime {

enum class Epilogue : uint8_t { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh };

/// The function that a node is, if it is one of them.
std::optional<Epilogue> epilogue_of(const ir::Node& node);

/// Products, each with the function that a kernel of its own passes the results through, nobody else reading
/// them and no condition holding for either. `wanted` says which values may be such results.
std::vector<std::pair<const ir::Node*, const ir::Node*>> functions_after(
    const codegen::Schedule& schedule, const codegen::Predicates& predicates,
    const std::function<bool(const ir::Value&)>& wanted);

at::Tensor apply(Epilogue epilogue, const at::Tensor& x);

}  // namespace graft::runtime
