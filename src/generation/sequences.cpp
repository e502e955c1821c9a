#include "generation/sequences.h"

#include <ATen/ATen.h>

namespace graft::generation {

Sequences::Sequences(const at::Tensor& ids) : room_(ids.clone()), length_(ids.size(1)) {}

void Sequences::add(const at::Tensor& tokens) {
  if (length_ == room_.size(1)) {
    constexpr int64_t least = 64;
    room_ = at::constant_pad_nd(room_, {0, std::max(least, length_)});
  }
  room_.select(1, length_++).copy_(tokens);
}

}  // namespace graft::generation
