// Whether a tensor is being trained. torch's C++ optimizers write through data(), past a tensor's version
// counter: whoever keeps something made from a weight cannot see that. But before an optimizer there is a
// gradient.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>

namespace graft::runtime {

/// True from the first gradient on that is computed for `leaf` after the first call with it. The tensor must
/// require one.
std::shared_ptr<const std::atomic<bool>> watch_for_gradients(const at::Tensor& leaf);

}  // namespace graft::runtime
