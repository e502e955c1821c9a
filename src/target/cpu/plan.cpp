#include "target/cpu/plan.h"

#include <algorithm>

namespace graft::cpu {
namespace {

using codegen::Kernel;
using codegen::Op;

/// Lanes so that the widest type in the kernel fills a few registers: vectors wider than a register are split
/// by LLVM, which hides latencies as unrolling would.
int width_for(const Kernel& kernel, const Host& host) {
  int64_t usual = 1;
  for (const auto& i : kernel.code) {
    if (i.op == Op::load && i.indirect.empty()) usual = std::max(usual, ir::size_of(i.dtype));
  }
  const int lanes = static_cast<int>(host.vector_bytes / std::max<int64_t>(usual, 1));
  const int registers = host.vector_bytes >= 64 ? 1 : host.vector_bytes >= 32 ? 2 : 4;
  return std::clamp(lanes * registers, 4, 16);
}

/// What one step along a dimension costs in memory traffic: neighbours in one vector are good, far apart bad.
double cost_of(const Kernel& kernel, int dim) {
  double cost = 0;
  for (const auto& i : kernel.code) {
    if (i.op != Op::load && i.op != Op::store) continue;
    if (!i.index.uses(dim)) {
      cost += 0.2;
      continue;
    }
    bool contiguous = i.index.is_affine() && i.index.coefficient(dim) == 1;
    if (!contiguous) {
      // Affine in this variable, whatever the others are in.
      contiguous = i.index.coefficient(dim) == 1;
      for (const auto& term : i.index.terms())
        contiguous &= term.atom->kind == codegen::Atom::Kind::variable || !term.atom->inside.uses(dim);
    }
    cost += contiguous ? 1 : 6;
  }
  return cost;
}

}  // namespace

Plan plan(const Kernel& kernel, const Host& host) {
  Plan made;
  if (kernel.kept_points() == 0) {
    made.tasks = 0;  // the code is never run
    return made;
  }
  const int wide = width_for(kernel, host);
  double best = 1e30;
  for (int d = static_cast<int>(kernel.dims.size()) - 1; d >= 0; --d) {
    const auto& dim = kernel.dims[static_cast<size_t>(d)];
    double cost = cost_of(kernel, d);
    if (dim.extent < wide) cost *= static_cast<double>(wide) / static_cast<double>(dim.extent) * 0.75;
    if (cost < best * 0.999) best = cost, made.vector_dim = d;
  }
  int64_t reduced = 1;
  for (const auto& dim : kernel.dims) reduced *= dim.reduced ? dim.extent : 1;
  for (size_t d = 0; d < kernel.dims.size(); ++d)
    if (!kernel.dims[d].reduced && static_cast<int>(d) != made.vector_dim)
      made.tasks *= kernel.dims[d].extent;
  const int64_t instructions = static_cast<int64_t>(kernel.code.size());
  if (made.vector_dim < 0) {
    made.work = instructions;
    return made;
  }
  const auto& dim = kernel.dims[static_cast<size_t>(made.vector_dim)];
  made.width = static_cast<int>(std::min<int64_t>(wide, dim.extent));
  while (made.width & (made.width - 1)) made.width &= made.width - 1;  // a power of two
  made.rows = dim.reduced;
  if (!made.rows) {
    // Columns of a reduction: one vector per task. Plain loops: long enough to amortise a task's start.
    const int64_t whole = (dim.extent + made.width - 1) / made.width * made.width;
    const int64_t target = reduced > 1 ? made.width : std::max<int64_t>(made.width, 2048);
    made.block = std::min(whole, (target + made.width - 1) / made.width * made.width);
    made.blocks = (dim.extent + made.block - 1) / made.block;
    made.tasks *= made.blocks;
  }
  made.work = instructions * reduced * (made.rows ? 1 : made.block);
  return made;
}

}  // namespace graft::cpu
