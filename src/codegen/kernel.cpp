#include "codegen/kernel.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>

namespace graft::codegen {
namespace {

bool has_index(const Instruction& i) { return i.op == Op::load || i.op == Op::store || i.op == Op::iota; }

void substitute(Kernel& kernel, const std::vector<Index>& table) {
  for (auto& instruction : kernel.code)
    if (has_index(instruction)) instruction.index = instruction.index.substitute(table);
}

/// The divisors that can be taken out of a dimension one after the other, smallest first.
std::vector<int64_t> chain(std::vector<int64_t> divisors, int64_t extent) {
  std::sort(divisors.begin(), divisors.end());
  std::vector<int64_t> kept;
  for (const int64_t d : divisors)
    if (d > 1 && d < extent && extent % d == 0 &&
        (kept.empty() || (d != kept.back() && d % kept.back() == 0)))
      kept.push_back(d);
  return kept;
}

/// True if something was split.
bool split_dimensions(Kernel& kernel) {
  std::map<int, std::vector<int64_t>> splits;
  for (const auto& instruction : kernel.code)
    if (has_index(instruction)) instruction.index.collect_splits(splits);
  bool changed = false;
  std::vector<Dimension> dims;
  std::vector<Index> table(kernel.dims.size());
  for (size_t i = 0; i < kernel.dims.size(); ++i) {
    const auto divisors = chain(splits[static_cast<int>(i)], kernel.dims[i].extent);
    changed |= !divisors.empty();
    int64_t outer = kernel.dims[i].extent;
    for (size_t k = divisors.size() + 1; k-- > 0;) {  // outermost first
      const int64_t inner = k == 0 ? 1 : divisors[k - 1];
      table[i] = table[i] + Index::variable(static_cast<int>(dims.size()), outer / inner) * inner;
      dims.push_back({outer / inner, kernel.dims[i].reduced});
      outer = inner;
    }
  }
  if (!changed) return false;
  kernel.dims = std::move(dims);
  substitute(kernel, table);
  return true;
}

void drop_unit_dimensions(Kernel& kernel) {
  std::vector<Dimension> dims;
  std::vector<Index> table(kernel.dims.size());
  for (size_t i = 0; i < kernel.dims.size(); ++i) {
    if (kernel.dims[i].extent == 1) continue;
    table[i] = Index::variable(static_cast<int>(dims.size()), kernel.dims[i].extent);
    dims.push_back(kernel.dims[i]);
  }
  kernel.dims = std::move(dims);
  substitute(kernel, table);
}

bool can_join(const Kernel& kernel, int a) {
  const int b = a + 1;
  if (kernel.dims[static_cast<size_t>(a)].reduced != kernel.dims[static_cast<size_t>(b)].reduced)
    return false;
  const int64_t extent = kernel.dims[static_cast<size_t>(b)].extent;
  return std::all_of(kernel.code.begin(), kernel.code.end(), [&](const Instruction& i) {
    if (!has_index(i)) return true;
    for (const auto& term : i.index.terms())
      if (term.atom->kind != Atom::Kind::variable && (term.atom->inside.uses(a) || term.atom->inside.uses(b)))
        return false;
    return i.index.coefficient(a) == i.index.coefficient(b) * extent;
  });
}

void join(Kernel& kernel, int a) {
  const auto merged = static_cast<size_t>(a);
  const int64_t extent = kernel.dims[merged].extent * kernel.dims[merged + 1].extent;
  std::vector<Index> table(kernel.dims.size());
  for (size_t i = 0; i < table.size(); ++i) {
    if (i == merged)
      table[i] = 0;  // its part is in what the inner one becomes
    else if (i == merged + 1)
      table[i] = Index::variable(a, extent);
    else
      table[i] = Index::variable(static_cast<int>(i > merged ? i - 1 : i), kernel.dims[i].extent);
  }
  kernel.dims[merged].extent = extent;
  kernel.dims.erase(kernel.dims.begin() + a + 1);
  substitute(kernel, table);
}

void find_phases(Kernel& kernel) {
  const auto reduced = [&](const Index& index) {
    for (size_t i = 0; i < kernel.dims.size(); ++i)
      if (kernel.dims[i].reduced && index.uses(static_cast<int>(i))) return true;
    return false;
  };
  const bool has_reduced =
      std::any_of(kernel.dims.begin(), kernel.dims.end(), [](const Dimension& d) { return d.reduced; });
  kernel.phases = 0;
  for (auto& instruction : kernel.code) {
    bool full = has_index(instruction) && reduced(instruction.index);
    // As often as there are points, also where all are the same.
    full |= (instruction.adds || is_scan(instruction.op)) && has_reduced;
    int phase = 0;
    bool once = instruction.over_rows, column = false;
    const auto consider = [&](int arg) {
      const auto& source = kernel.code[static_cast<size_t>(arg)];
      full |= source.full;
      once |= source.once;
      column |= source.column;
      phase = std::max(phase, source.phase);
    };
    for (const int arg : instruction.args) consider(arg);
    for (const auto& indirect : instruction.indirect) consider(indirect.value);
    if (instruction.guard >= 0) consider(instruction.guard);
    instruction.column = column || instruction.by_columns;
    if (instruction.column) {
      if (column && instruction.op != Op::store)
        throw std::logic_error("columns are stored and nothing else");
      full = false;
      kernel.phases = std::max(kernel.phases, phase + 1);
    }
    if (once && (full || (is_reduction(instruction.op) && !instruction.over_rows)))
      throw std::logic_error("a row needs what is there when all rows are done");
    instruction.once = once;
    if (is_reduction(instruction.op) && !instruction.over_rows) {
      // Its loop is the one of its argument; what uses it comes one later.
      instruction.full = false;
      instruction.phase = phase + 1;
      kernel.phases = std::max(kernel.phases, phase + 1);
    } else {
      instruction.full = full;
      instruction.phase = phase;
      if (full) kernel.phases = std::max(kernel.phases, phase + 1);
    }
  }
}

}  // namespace

bool Kernel::reduces_rows() const {
  return std::any_of(code.begin(), code.end(), [](const Instruction& i) { return i.over_rows; });
}

bool Kernel::scans() const {
  return std::any_of(code.begin(), code.end(), [](const Instruction& i) { return is_scan(i.op); });
}

bool Kernel::scatters() const {
  return std::any_of(code.begin(), code.end(), [](const Instruction& i) { return i.adds; });
}

int64_t Kernel::kept_points() const {
  int64_t n = 1;
  for (const auto& dim : dims) n *= dim.reduced ? 1 : dim.extent;
  return n;
}

int64_t Kernel::reduced_points() const {
  int64_t n = 1;
  for (const auto& dim : dims) n *= dim.reduced ? dim.extent : 1;
  return n;
}

void analyse(Kernel& kernel) {
  for (int round = 0; round < 4 && split_dimensions(kernel); ++round) {
  }
  drop_unit_dimensions(kernel);
  for (int a = 0; a + 1 < static_cast<int>(kernel.dims.size());) {
    if (can_join(kernel, a))
      join(kernel, a);
    else
      ++a;
  }
  find_phases(kernel);
  if (kernel.scatters() && std::any_of(kernel.code.begin(), kernel.code.end(), [](const Instruction& i) {
        return is_reduction(i.op) || (i.op == Op::store && !i.adds);
      }))
    throw std::logic_error("a kernel that scatters does nothing else");
}

std::string to_string(const Kernel& kernel) {
  std::ostringstream text;
  text << "kernel(";
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    text << (i ? ", " : "") << (kernel.buffers[i].written ? "out " : "") << "b" << i << ": "
         << ir::name_of(kernel.buffers[i].dtype);
  text << ") for";
  for (size_t i = 0; i < kernel.dims.size(); ++i)
    text << " i" << i << "<" << kernel.dims[i].extent << (kernel.dims[i].reduced ? " reduced" : "");
  text << " {\n";
  text.precision(17);
  for (size_t n = 0; n < kernel.code.size(); ++n) {
    const auto& i = kernel.code[n];
    text << "  " << (i.full ? "  " : "") << "v" << n << ": " << ir::name_of(i.dtype) << " = " << name_of(i.op)
         << (i.by_columns  ? " by columns"
             : i.over_rows ? " over rows"
                           : "")
         << (i.takes  ? " taking the place"
             : i.adds ? " adding"
                      : "");
    for (const int arg : i.args) text << " v" << arg;
    if (i.op == Op::constant) {
      if (ir::is_floating(i.dtype))
        text << " " << i.number;
      else
        text << " " << i.integer;
    }
    if (i.buffer >= 0)
      text << " b" << i.buffer << "[" << to_string(i.index);
    else if (i.op == Op::iota)
      text << " [" << to_string(i.index);
    for (const auto& x : i.indirect)
      text << " + " << x.stride << "*v" << x.value << "{<" << x.size << (x.wraps ? ", wraps" : "") << "}";
    if (has_index(i)) text << "]";
    if (i.guard >= 0) text << " if v" << i.guard;
    if (i.phase) text << "  # phase " << i.phase;
    text << "\n";
  }
  text << "}\n";
  return text.str();
}

}  // namespace graft::codegen
