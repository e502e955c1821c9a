#include "compiler/joined_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <ranges>

namespace graft {
namespace {

/// Whether two tensors in one storage may have an element in common. Parts of a tensor do not (what a cat was
/// made of, chunks, rows): they are boxes in one grid.
bool may_meet(const at::Tensor& one, const at::Tensor& other) {
  const bool in_order = one.storage_offset() <= other.storage_offset();
  const auto &a = in_order ? one : other, &b = in_order ? other : one;
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (a.strides() != b.strides()) return true;
  std::vector<size_t> dims(a.strides().size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::ranges::sort(dims, [&](size_t d, size_t e) { return a.strides()[d] > a.strides()[e]; });
  int64_t apart = b.storage_offset() - a.storage_offset();
  bool meets = true;
  std::vector<int64_t> extents(dims.size());
  for (const size_t d : dims) {
    if (a.strides()[d] <= 0) return true;
    const int64_t steps = apart / a.strides()[d];
    apart %= a.strides()[d];
    meets &= steps < a.sizes()[d];
    extents[d] = std::max(a.sizes()[d], steps + b.sizes()[d]);
  }
  // No grid if two places in it are one in memory.
  int64_t reach = 0;
  for (const size_t d : std::views::reverse(dims)) {
    if (a.strides()[d] <= reach) return true;
    reach += (extents[d] - 1) * a.strides()[d];
  }
  return apart != 0 || meets;
}

bool are_joined(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && !a.is_same(b) && a.is_alias_of(b) && may_meet(a, b);
}

}  // namespace

void part_gradients(std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (are_joined(gradients[i], gradients[k])) {
        gradients[i] = gradients[i].clone();
        break;
      }
}

}  // namespace graft
