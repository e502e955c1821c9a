#include "runtime/work.h"

#include <ATen/ATen.h>

namespace graft::runtime {

void KernelWork::run(Frame& frame, bool in_place) const {
  // Asking for a pointer to write copies a tensor that shares its memory (weights mapped from a file): first,
  // so that who reads the same tensor reads the copy.
  for (const bool written : {true, false})
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const auto& buffer = buffers_[i];
      if (buffer.written != written) continue;
      const auto& tensor = frame.table[buffer.slot];
      auto* start = written ? tensor.data_ptr() : const_cast<void*>(tensor.const_data_ptr());
      frame.pointers[i] = static_cast<char*>(start) + buffer.bytes;
    }
  launcher_->launch({.buffers = frame.pointers.data(),
                     .failed = frame.context->failed(),
                     .mark = mark_,
                     .unless_failed = in_place && guarded_,
                     .stream = frame.context->stream()});
}

void ProductWork::run(Frame& frame, bool) const {
  auto& out = frame.table[slots_.out];
  const auto& a = frame.table[slots_.a];
  const auto& b = frame.table[slots_.b];
  switch (kind_) {
    case Product::mm:
      return device_.multiply_into(out, a, b);
    case Product::bmm:
      at::bmm_out(out, a, b);
      return;
    case Product::addmm:
      return device_.multiply_and_add_into(out, frame.table[slots_.added], a, b, beta_, alpha_);
  }
}

void PackedWork::run(Frame& frame, bool) const {
  const auto bias = slots_.bias == none ? at::Tensor() : frame.table[slots_.bias];
  frame.table[slots_.out] =
      product_->run(frame.table[slots_.x], frame.table[slots_.weight], bias, frame.packed[number_].get())
          .view(sizes_);
}

void PackedWork::watch_weight(Frame& frame) const {
  if (const auto& packed = frame.packed[number_]; packed && packed->stamp.parts() > 0)
    frame.watched.push_back({&packed->stamp, &frame.table[slots_.weight], &name_});
}

void CallWork::run(Frame& frame, bool) const {
  call_.run(frame.table);
  for (const auto& [from, to] : moves_) {
    frame.table[to].copy_(frame.table[from]);
    frame.table[from].reset();
  }
}

void RowUpdateWork::run(Frame& frame, bool in_place) const {
  if (!in_place) return otherwise_->run(frame, in_place);
  const auto& input = frame.table[slots_.input];
  device_.write_rows({input, frame.table[slots_.index], frame.table[slots_.source], slots_.dim, mark_, what_},
                     *frame.context);
  frame.table[slots_.out] = input;
}

}  // namespace graft::runtime
