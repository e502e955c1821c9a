#include "targets/cuda_code/layout.h"

#include <algorithm>
#include <bit>

namespace graft::cuda {
namespace {

using codegen::Kernel;
using codegen::Op;

constexpr int64_t few_reduced = 16;        // one thread does them one after the other
constexpr int64_t enough_threads = 16384;  // fewer, and a thread takes fewer points at once
constexpr int64_t many_rows = 2048;        // each of a warp, rather than of a block
constexpr int64_t some_rows = 512;         // the same of rows that are read once
constexpr int64_t long_row = 16384;        // too long for them, then
constexpr int64_t warps_enough = 16384;    // rows of a warp each, so many, keep the memory busy
constexpr int64_t steps_at_once = 4;       // of a loop that the compiler has unrolled (code.cpp)
constexpr int warp = 32, most_lanes = 512, most_lanes_of_many = 256, column_lanes = 16;
constexpr int most_held = 32, most_held_steps = 8;
constexpr int64_t bytes_at_once = 16;

int innermost(const Kernel& kernel) {
  for (size_t d = kernel.dims.size(); d-- > 0;)
    if (kernel.dims[d].extent > 1) return static_cast<int>(d);
  return -1;
}

bool is_access(const codegen::Instruction& i) { return i.op == Op::load || i.op == Op::store; }

/// So many neighbours along the variable that the smallest elements fill one access to memory.
int widest(const Kernel& kernel, int variable) {
  int64_t width = 1;
  for (const auto& i : kernel.code)
    if (is_access(i) && steps_by_one(i.index, variable))
      width =
          std::max(width, bytes_at_once / ir::size_of(kernel.buffers[static_cast<size_t>(i.buffer)].dtype));
  width = std::min<int64_t>(width, 8);
  while (kernel.dims[static_cast<size_t>(variable)].extent % width != 0) width /= 2;
  return static_cast<int>(width);
}

bool is_narrow(const Kernel& kernel) {
  constexpr int64_t most = int64_t{1} << 30;
  if (kernel.kept_points() >= most || kernel.reduced_points() >= most) return false;
  return std::ranges::all_of(kernel.code, [&](const codegen::Instruction& i) {
    return i.index.min() > -most && i.index.max() < most;
  });
}

int lanes_for(int64_t reduced, int64_t width, int most) {
  const auto needed = static_cast<uint64_t>((reduced + width - 1) / width);
  return static_cast<int>(std::clamp<uint64_t>(std::bit_ceil(needed), warp, static_cast<uint64_t>(most)));
}

void lay_rows(const Kernel& kernel, int inner, Layout& layout) {
  const int64_t reduced = kernel.reduced_points();
  if (kernel.dims[static_cast<size_t>(inner)].reduced) {
    layout.vector_dim = inner;
    layout.width = widest(kernel, inner);
  }
  layout.lanes = lanes_for(reduced, layout.width, most_lanes);
  if (kernel.kept_points() >= many_rows && reduced <= int64_t{warp} * most_held) layout.lanes = warp;
  layout.points = layout.lanes > warp ? 1 : kernel.kept_points() >= many_rows ? 8 : 4;
  // Such as products with a vector. Few rows are shared by several warps, each of which has all that it reads
  // on the way at a time; many rows are enough for warps of their own.
  if (kernel.phases == 1 && kernel.kept_points() >= some_rows && reduced <= long_row) {
    const int64_t steps = kernel.kept_points() < warps_enough ? steps_at_once : reduced;
    layout.lanes = lanes_for(reduced, layout.width * steps, most_lanes_of_many);
    layout.points = most_lanes_of_many / layout.lanes;
  }
  const int64_t at_once = int64_t{layout.lanes} * layout.width;
  const int64_t steps = (reduced + at_once - 1) / at_once;
  if (steps <= most_held_steps && steps * layout.width <= most_held)
    layout.held_steps = static_cast<int>(steps);
}

void lay_points(const Kernel& kernel, int inner, Layout& layout) {
  if (inner < 0 || kernel.dims[static_cast<size_t>(inner)].reduced) return;
  layout.vector_dim = inner;
  layout.width = widest(kernel, inner);
  while (layout.width > 1 && kernel.kept_points() / layout.width < enough_threads) layout.width /= 2;
}

}  // namespace

bool steps_by_one(const codegen::Index& index, int variable) {
  bool found = false;
  for (const auto& [coefficient, atom] : index.terms()) {
    if (atom->kind == codegen::Atom::Kind::variable) {
      if (atom->variable != variable) continue;
      if (coefficient != 1) return false;
      found = true;
    } else if (atom->inside.uses(variable)) {
      return false;
    }
  }
  return found;
}

Layout layout_of(const Kernel& kernel) {
  Layout layout;
  layout.narrow = is_narrow(kernel);
  const int inner = innermost(kernel);
  if (kernel.scatters()) return layout;
  if (kernel.phases == 0) {
    lay_points(kernel, inner, layout);
  } else if (kernel.reduced_points() >= few_reduced) {
    if (kernel.dims[static_cast<size_t>(inner)].reduced || kernel.kept_points() < warp) {
      lay_rows(kernel, inner, layout);
    } else {
      layout.rows = false;
      layout.points = warp;
      layout.lanes = column_lanes;
    }
  }
  return layout;
}

}  // namespace graft::cuda
