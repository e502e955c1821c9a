#include "targets/cpu/plan.h"

#include <algorithm>
#include <bit>

namespace graft::cpu {
namespace {

using codegen::Kernel;
using codegen::Op;

constexpr int kWidest = 64;  // lanes
// Elements from one line of memory to another, at least. A core's caches keep so many lines even if they all
// start at the same place of a page.
constexpr int64_t elements_apart = 64, lines_at_a_time = 64;

/// The largest that is not above it.
int power_of_two(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

/// By instruction: whether its value, or where it is stored, differs along the dimension.
std::vector<bool> varying_along(const Kernel& kernel, int dim) {
  std::vector<bool> varies(kernel.code.size());
  for (size_t n = 0; n < kernel.code.size(); ++n) {
    const auto& i = kernel.code[n];
    bool any = i.index.uses(dim);
    for (const int arg : i.args) any |= varies[static_cast<size_t>(arg)];
    for (const auto& x : i.indirect) any |= varies[static_cast<size_t>(x.value)];
    if (i.guard >= 0) any |= varies[static_cast<size_t>(i.guard)];
    varies[n] = any;
  }
  return varies;
}

/// Lanes so that the widest type that is read along the dimension fills a few registers: vectors wider than a
/// register are split by LLVM, which hides latencies as unrolling would.
int width_for(const Kernel& kernel, const Host& host, int dim) {
  int64_t usual = 1;
  for (const auto& i : kernel.code)
    if (i.op == Op::load && i.indirect.empty() && i.index.uses(dim))
      usual = std::max(usual, ir::size_of(i.dtype));
  const int lanes = static_cast<int>(host.vector_bytes / std::max<int64_t>(usual, 1));
  const bool many_wide_ones = host.vector_bytes >= 64;
  return std::clamp(lanes * (host.vector_bytes >= 32 ? 2 : 4), 4, many_wide_ones ? 32 : 16);
}

/// Of a reduction's columns, which are read row by row: the more of a row at a time, the fewer pages are
/// touched for the same bytes. As many as there are registers for the sums and for what goes into them.
int width_of_columns(const Kernel& kernel, const Host& host, int usual) {
  int sums = 0, computed = 0;
  for (const auto& i : kernel.code) {
    if (codegen::is_expensive(i.op) || ir::size_of(i.dtype) > 4) return usual;
    if (codegen::is_reduction(i.op))
      sums += static_cast<int>(i.args.size());
    else if (i.full && i.op != Op::load && i.op != Op::store)
      ++computed;
  }
  const int registers = host.vector_bytes == 32 ? 16 : 32;  // AVX2 has half of what the others have
  const int live = sums + std::min(1 + computed, 3);
  const int width = power_of_two(host.vector_bytes / 4 * (registers / live));
  return std::clamp(width, usual, std::max(usual, kWidest));
}

/// Affine in this variable, whatever the others are in, with neighbours side by side in memory.
bool is_contiguous(const codegen::Index& index, int dim, int64_t step = 1) {
  const auto& terms = index.terms();
  return index.coefficient(dim) == step && std::all_of(terms.begin(), terms.end(), [&](const auto& term) {
           return term.atom->kind == codegen::Atom::Kind::variable || !term.atom->inside.uses(dim);
         });
}

/// Whether neighbours along the dimension are added one after the other: they may meet, or lie anywhere.
bool adds_by_lanes(const Kernel& kernel, const codegen::Instruction& i, int dim) {
  const auto varies = varying_along(kernel, dim);
  return kernel.dims[static_cast<size_t>(dim)].reduced ||
         (i.guard >= 0 && varies[static_cast<size_t>(i.guard)]) ||
         std::any_of(i.indirect.begin(), i.indirect.end(),
                     [&](const auto& x) { return varies[static_cast<size_t>(x.value)]; });
}

/// Whether neighbours along the dimension are added at once.
bool scatters_rows(const Kernel& kernel, int dim) {
  const auto store =
      std::find_if(kernel.code.begin(), kernel.code.end(), [](const auto& i) { return i.adds; });
  return !adds_by_lanes(kernel, *store, dim) && is_contiguous(store->index, dim);
}

/// What one step along a dimension costs in memory traffic: neighbours in one vector are good, far apart bad.
double cost_of(const Kernel& kernel, int dim) {
  double cost = 0;
  for (const auto& i : kernel.code) {
    if (i.op != Op::load && i.op != Op::store) continue;
    if (i.adds && adds_by_lanes(kernel, i, dim)) {
      cost += 6;
      continue;
    }
    if (!i.index.uses(dim)) {
      cost += 0.2;
      continue;
    }
    const bool reversed = is_contiguous(i.index, dim, -1) && i.guard < 0 && i.indirect.empty();
    cost += is_contiguous(i.index, dim) ? 1 : reversed ? 1.5 : 6;
  }
  return cost;
}

/// An access that a vector along the dimension has to do one by one.
bool lies_apart(const codegen::Instruction& i, int dim) {
  return (i.op == Op::load || i.op == Op::store) && i.index.uses(dim) && !is_contiguous(i.index, dim) &&
         !is_contiguous(i.index, dim, -1);
}

/// Of a kernel that scans: lines side by side, as they lie in memory; else along the line, if it lies in one
/// piece; -1: neither.
int dimension_of_scan(const Kernel& kernel) {
  const auto fits = [&](int dim) {
    return std::none_of(kernel.code.begin(), kernel.code.end(),
                        [&](const auto& i) { return lies_apart(i, dim); });
  };
  int innermost = -1, found = -1;
  for (int d = 0; d < static_cast<int>(kernel.dims.size()); ++d)
    if (kernel.dims[static_cast<size_t>(d)].reduced)
      innermost = d;
    else if (fits(d))
      found = d;
  if (found >= 0) return found;
  return innermost >= 0 && fits(innermost) ? innermost : -1;
}

/// Along a line each vector is a register: what it comes to is found by moving lanes.
int width_of_line(const Kernel& kernel, const Host& host) {
  int64_t widest = 1;
  for (const auto& i : kernel.code)
    if (codegen::is_scan(i.op)) widest = std::max(widest, ir::size_of(i.dtype));
  return static_cast<int>(host.vector_bytes / widest);
}

/// Whether the kernel goes through some tensor by lines of memory that are far apart along the vector's
/// dimension, each of which holds what the next point of another dimension needs.
bool goes_across(const Kernel& kernel, int vector_dim) {
  int last = static_cast<int>(kernel.dims.size()) - 1;
  last -= last == vector_dim ? 1 : 0;
  return last >= 0 && std::any_of(kernel.code.begin(), kernel.code.end(), [&](const auto& i) {
           return (i.op == Op::load || i.op == Op::store) && i.indirect.empty() &&
                  i.index.coefficient(vector_dim) >= elements_apart && is_contiguous(i.index, last);
         });
}

// Fewer tasks than this are few. A number of its own, not the machine's threads: the order of a sum must not
// depend on where it runs.
constexpr int64_t few_tasks = 64, parts_in_all = 128;
// Instructions times points that a part has at least: less is not worth a thread's time.
constexpr int64_t work_per_part = 60'000;
// Shorter rows keep what is dear from one phase to the next (emit.cpp), which parts cannot.
constexpr int64_t shortest_split_row = 1 << 14;
// Rows that a core reads side by side without their evicting each other (they often start at the same place
// of a page, and then share the same few lines of its cache), and points that do not stay near it.
constexpr int64_t streams_at_a_time = 16, many_points = 1 << 17;

// Of columns that are scattered each to a row of its own: elements that a task has, so that there are many
// tasks and each goes through whole lines of memory.
constexpr int64_t many_tasks = 16, shortest_stretch = 64, longest_stretch = 2048;
// Of rows that are scattered whole: elements for which looking at a row's place costs little.
constexpr int64_t worth_a_look = 32;

/// The outermost reduced dimension that has enough of everything, or else the longest.
int dimension_to_split(const Kernel& kernel, const Plan& plan, int64_t parts) {
  int longest = -1;
  for (int d = 0; d < static_cast<int>(kernel.dims.size()); ++d) {
    const auto& dim = kernel.dims[static_cast<size_t>(d)];
    if (!dim.reduced) continue;
    if (d != plan.vector_dim && dim.extent >= 2 * parts) return d;
    if (longest < 0 || dim.extent > kernel.dims[static_cast<size_t>(longest)].extent) longest = d;
  }
  return longest;
}

/// Into how many parts the reduced points of each task go; fewer than 2: none.
int64_t parts_wanted(const Kernel& kernel, const Plan& plan) {
  const int64_t reduced = kernel.reduced_points();
  if (plan.rows && reduced <= shortest_split_row) return 1;
  int64_t wanted = 1;
  if (plan.tasks < few_tasks)
    wanted = std::min((parts_in_all + plan.tasks - 1) / plan.tasks, plan.work / work_per_part);
  // Columns of more than a cache's worth: a few rows at a time, each read from its start to its end.
  if (!plan.rows && kernel.kept_points() * reduced >= many_points) {
    const auto streams = std::count_if(kernel.code.begin(), kernel.code.end(), [](const auto& i) {
      return i.full && (i.op == Op::load || i.op == Op::store);
    });
    wanted =
        std::max(wanted, reduced / std::max<int64_t>(streams_at_a_time / std::max<int64_t>(streams, 1), 4));
  }
  // With several phases each part of the later ones combines what all parts before it left: more parts than a
  // part has rows would be more of that than of the work itself.
  if (kernel.phases > 1)
    while (wanted > 1 && 2 * wanted * wanted > reduced) wanted /= 2;
  return wanted;
}

void split_reduction(const Kernel& kernel, Plan& plan) {
  const bool reduces = std::any_of(kernel.code.begin(), kernel.code.end(),
                                   [](const auto& i) { return codegen::is_reduction(i.op); });
  const int64_t wanted = reduces ? parts_wanted(kernel, plan) : 1;
  if (wanted < 2) return;
  const int dim = dimension_to_split(kernel, plan, wanted);
  const int64_t extent = kernel.dims[static_cast<size_t>(dim)].extent;
  const int64_t unit = dim == plan.vector_dim ? plan.width : 1;
  const int64_t part = ((extent + wanted - 1) / wanted + unit - 1) / unit * unit;
  if (part >= extent) return;
  plan.split_dim = dim;
  plan.part = part;
  plan.parts = (extent + part - 1) / part;
  const bool stores_rows = std::any_of(kernel.code.begin(), kernel.code.end(),
                                       [](const auto& i) { return i.op == Op::store && !i.full; });
  plan.parted_stages = kernel.phases;
  plan.stages = kernel.phases + (stores_rows ? 1 : 0);
  plan.work = std::max<int64_t>(plan.work / plan.parts, 1);
  plan.partial_words = partial_slots(kernel).count * plan.tasks * plan.parts * (plan.rows ? 1 : plan.block);
}

void deal_out_targets(const Kernel& kernel, Plan& plan) {
  const auto& dim = kernel.dims[static_cast<size_t>(plan.vector_dim)];
  const int64_t parts = std::min(many_tasks / std::min(plan.tasks, many_tasks), dim.extent / worth_a_look);
  if (parts < 2) return;
  plan.parts = power_of_two(static_cast<int>(parts));
  plan.parted_stages = 1;
  plan.work = std::max<int64_t>(plan.work / plan.parts, 1);
}

void deal_out_rows(const Kernel& kernel, Plan& plan) {
  const int64_t rows = plan.tasks, worth = (work_per_part + plan.work - 1) / plan.work;
  plan.part = std::min(rows, std::max((rows + parts_in_all - 1) / parts_in_all, worth));
  plan.parts = (rows + plan.part - 1) / plan.part;
  plan.tasks = 1;
  plan.work *= plan.part;
  plan.parted_stages = 1;
  plan.stages = 2;
  plan.partial_words = partial_slots(kernel).count * plan.parts;
}

}  // namespace

PartialSlots partial_slots(const Kernel& kernel) {
  PartialSlots slots{std::vector<int>(kernel.code.size(), -1)};
  for (size_t n = 0; n < kernel.code.size(); ++n)
    if (codegen::is_reduction(kernel.code[n].op)) {
      slots.of[n] = slots.count;
      slots.count += kernel.code[n].column ? static_cast<int>(kernel.reduced_points())
                                           : static_cast<int>(kernel.code[n].args.size());
    }
  return slots;
}

std::string to_string(const Tuning& tuning) {
  if (tuning == Tuning{}) return "";
  return "width " + std::to_string(tuning.width) + ", block " + std::to_string(tuning.block);
}

std::vector<Tuning> tunings(const Kernel& kernel, const Host& host) {
  std::vector<Tuning> found;
  std::vector<Plan> plans;
  for (const auto& tuning :
       {Tuning{}, Tuning{.width = -1}, Tuning{.width = 1}, Tuning{.block = 512}, Tuning{.block = 8192}}) {
    const auto made = plan(kernel, host, tuning);
    if (std::find(plans.begin(), plans.end(), made) != plans.end()) continue;
    plans.push_back(made);
    found.push_back(tuning);
  }
  return found;
}

Plan plan(const Kernel& kernel, const Host& host, const Tuning& tuning) {
  Plan made;
  if (kernel.kept_points() == 0) {
    made.tasks = 0;  // the code is never run
    return made;
  }
  const bool over_rows = kernel.reduces_rows(), scans = kernel.scans();
  const int line = scans ? dimension_of_scan(kernel) : -1;
  double best = 1e30;
  for (int d = static_cast<int>(kernel.dims.size()) - 1; d >= 0; --d) {
    const auto& dim = kernel.dims[static_cast<size_t>(d)];
    if (over_rows && !dim.reduced) continue;  // rows come one by one
    if (scans && d != line) continue;
    double cost = cost_of(kernel, d);
    const int wide = width_for(kernel, host, d);
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
    made.work = instructions * reduced;
    return made;
  }
  const auto& dim = kernel.dims[static_cast<size_t>(made.vector_dim)];
  made.rows = dim.reduced;
  const int wide = width_for(kernel, host, made.vector_dim);
  const bool scatters = kernel.scatters();
  const int usual = reduced > 1 && !made.rows && !scatters ? width_of_columns(kernel, host, wide) : wide;
  const int widest = tuning.width > 0   ? std::min(2 * usual, kWidest)
                     : tuning.width < 0 ? std::max(usual / 2, 1)
                                        : usual;
  made.width = power_of_two(static_cast<int>(std::min<int64_t>(widest, dim.extent)));
  if (scans && made.rows) made.width = std::min(made.width, width_of_line(kernel, host));
  const bool whole_rows = scatters && reduced > 1 && scatters_rows(kernel, made.vector_dim);
  if (!made.rows) {
    // Columns of a reduction: one vector per task. Plain loops: long enough to amortise a task's start.
    // Columns that are scattered: a stretch of each row, as long as tasks are many.
    const int64_t whole = (dim.extent + made.width - 1) / made.width * made.width;
    const int64_t stretch =
        std::clamp(dim.extent * made.tasks / many_tasks, shortest_stretch, longest_stretch);
    made.across = reduced == 1 && !scatters && goes_across(kernel, made.vector_dim);
    const int64_t target = made.across                  ? std::max<int64_t>(made.width, lines_at_a_time)
                           : reduced == 1 || whole_rows ? std::max<int64_t>(made.width, tuning.block)
                           : scatters                   ? std::max<int64_t>(made.width, stretch)
                                                        : made.width;
    made.block = std::min(whole, (target + made.width - 1) / made.width * made.width);
    made.blocks = (dim.extent + made.block - 1) / made.block;
    made.tasks *= made.blocks;
  }
  made.work = instructions * reduced * (made.rows ? 1 : made.block);
  if (whole_rows)
    deal_out_targets(kernel, made);
  else if (over_rows)
    deal_out_rows(kernel, made);
  else
    split_reduction(kernel, made);
  return made;
}

}  // namespace graft::cpu
