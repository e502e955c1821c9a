// Functions of one number that a product can apply to its results before they are written.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "ir/graph.h"

namespace graft::runtime {

enum class Epilogue : uint8_t { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh };

/// The function that a node is, if it is one of them.
std::optional<Epilogue> epilogue_of(const ir::Node& node);

/// oneDNN's name for it, and for its form.
struct OneDnnName {
  const char* function;
  const char* form;
};
OneDnnName one_dnn_name(Epilogue epilogue);

at::Tensor apply(Epilogue epilogue, const at::Tensor& x);

}  // namespace graft::runtime
