#include "runtime/work.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

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
  if (way_) {
    const auto added = slots_.added == none ? at::Tensor() : frame.table[slots_.added];
    return way_->multiply(out, added, a, b, beta_, alpha_);
  }
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
  if (!in_place) {
    for (const auto& update : all_) update.otherwise->run(frame, in_place);
    return;
  }
  std::vector<Device::RowWrite> rows;
  rows.reserve(all_.size());
  for (const auto& [otherwise, slots, mark, what] : all_)
    rows.push_back({frame.table[slots.input], frame.table[slots.index], frame.table[slots.source], slots.dim,
                    mark, what});
  device_.write_rows(rows, *frame.context);
  for (const auto& update : all_) frame.table[update.slots.out] = frame.table[update.slots.input];
}

void RowUpdateWork::take_over(RowUpdateWork& other) {
  std::ranges::move(other.all_, std::back_inserter(all_));
  other.all_.clear();
}

}  // namespace graft::runtime
