// The options of libtorch's own layers: numbers and flags beside a module's tensors, which its forward()
// reads and code may change (`dropout->options.p(0.9)`).
#pragma once
#include <torch/nn/module.h>

#include <cstdint>

namespace graft {

/// Gives a number that is another one when an option is.
using ReadOptions = uint64_t (*)(const torch::nn::Module&);

/// Null for a module that is not one of libtorch's, or has no options.
ReadOptions options_reader(const torch::nn::Module& module);

}  // namespace graft
