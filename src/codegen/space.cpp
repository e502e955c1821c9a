#include "codegen/space.h"

#include <algorithm>
#include <set>

namespace graft::codegen {
namespace {

/// The sizes of the blocks that a row-major shape is made of: [2, 3, 4] has 4, 12 and 24.
std::set<int64_t> blocks(const std::vector<int64_t>& sizes) {
  std::set<int64_t> all;
  int64_t block = 1;
  for (size_t i = sizes.size(); i-- > 0;) all.insert(block *= sizes[i]);
  all.erase(1);
  return all;
}

std::vector<int64_t> extents(const Space& space) {
  std::vector<int64_t> sizes;
  for (const auto& dim : space) sizes.push_back(dim.extent);
  return sizes;
}

/// The dimensions between consecutive blocks, outermost first; nothing if one block does not divide the next.
std::optional<std::vector<int64_t>> between(const std::set<int64_t>& all) {
  std::vector<int64_t> sizes;
  int64_t inner = 1;
  for (const int64_t block : all) {
    if (block % inner != 0) return std::nullopt;
    sizes.push_back(block / inner);
    inner = block;
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::optional<std::vector<int64_t>> common(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  auto all = blocks(a);
  all.merge(blocks(b));
  return between(all);
}

/// Cuts each dimension of the space into those of `finer` that make it up.
Space cut(const Space& space, const std::vector<int64_t>& finer) {
  Space result;
  size_t next = 0;
  for (const auto& dim : space) {
    int64_t left = dim.extent;
    while (left > 1) {
      result.push_back({finer[next], dim.reduced});
      left /= finer[next++];
    }
  }
  return result;
}

bool reduces(const Space& space) {
  return std::any_of(space.begin(), space.end(), [](const Dimension& d) { return d.reduced; });
}

}  // namespace

int64_t points(const Space& space) {
  int64_t n = 1;
  for (const auto& dim : space) n *= dim.extent;
  return n;
}

int64_t kept_points(const Space& space) {
  int64_t n = 1;
  for (const auto& dim : space) n *= dim.reduced ? 1 : dim.extent;
  return n;
}

Space space_over(const std::vector<int64_t>& sizes, const std::vector<int64_t>& reduced) {
  Space space;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1)
      space.push_back(
          {sizes[i], std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end()});
  return space;
}

std::optional<Space> refine(const Space& space, const std::vector<int64_t>& sizes) {
  const auto finer = common(extents(space), sizes);
  if (!finer) return std::nullopt;
  return cut(space, *finer);
}

std::optional<Space> refine_kept(const Space& space, const std::vector<int64_t>& sizes) {
  Space kept;
  for (const auto& dim : space)
    if (!dim.reduced) kept.push_back(dim);
  const auto finer = refine(kept, sizes);
  if (!finer) return std::nullopt;
  Space result;
  size_t next = 0;
  for (const auto& dim : space) {
    if (dim.reduced) {
      result.push_back(dim);
      continue;
    }
    for (int64_t left = dim.extent; left > 1; left /= (*finer)[next++].extent)
      result.push_back((*finer)[next]);
  }
  return result;
}

std::optional<Space> unite(const Space& a, const Space& b) {
  const auto finer = common(extents(a), extents(b));
  if (!finer) return std::nullopt;
  auto x = cut(a, *finer);
  auto y = cut(b, *finer);
  if (!reduces(x)) return y;
  if (!reduces(y)) return x;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].reduced != y[i].reduced) return std::nullopt;
  return x;
}

std::optional<Space> crossed(const Space& a, const Space& b) {
  const auto finer = common(extents(a), extents(b));
  if (!finer) return std::nullopt;
  auto x = cut(a, *finer);
  const auto y = cut(b, *finer);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].reduced == y[i].reduced) return std::nullopt;
  return x;
}

}  // namespace graft::codegen
