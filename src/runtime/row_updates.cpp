#include "runtime/row_updates.h"

#include <algorithm>
#include <array>

namespace graft::runtime {
namespace {

bool have_same_places(const std::vector<Slot>& slots, const RowUpdateWork::Slots& a,
                      const RowUpdateWork::Slots& b) {
  const auto &x = slots[a.input].type, &y = slots[b.input].type;
  const auto dims = static_cast<int64_t>(x.sizes.size());
  const auto places = [&](const ir::TensorType& type, int64_t dim) {
    return type.sizes[static_cast<size_t>(dim < 0 ? dim + dims : dim)];
  };
  return a.index == b.index && x.dtype == y.dtype && x.sizes.size() == y.sizes.size() && dims > 0 &&
         places(x, a.dim) == places(y, b.dim);
}

bool need_no_order(const std::vector<Slot>& slots, const RowUpdateWork::Slots& a,
                   const RowUpdateWork::Slots& b) {
  const auto memory_of = [&](size_t slot) {
    while (slots[slot].root != none) slot = slots[slot].root;
    return slot;
  };
  const auto reads = [&](const RowUpdateWork::Slots& one, const RowUpdateWork::Slots& other) {
    return std::ranges::any_of(std::array{one.source, one.index}, [&](size_t read) {
      return memory_of(read) == memory_of(other.out) || memory_of(read) == memory_of(other.input);
    });
  };
  return memory_of(a.input) != memory_of(b.input) && !reads(a, b) && !reads(b, a);
}

}  // namespace

bool can_be_done_at_once(const std::vector<Slot>& slots, const RowUpdateWork::Slots& a,
                         const RowUpdateWork::Slots& b) {
  return have_same_places(slots, a, b) && need_no_order(slots, a, b);
}

}  // namespace graft::runtime
