#include "targets/cuda_code/code.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "graft/error.h"
#include "targets/cuda_code/expressions.h"
#include "targets/cuda_code/layout.h"

namespace graft::cuda {
namespace {

using codegen::Atom;
using codegen::Index;
using codegen::Instruction;
using codegen::Kernel;
using codegen::Op;
using ir::DType;

constexpr int64_t most_blocks = 1 << 20;  // each takes several points, if there are more
constexpr int warp = 32;

constexpr const char* last_parameters = "int* failed, int mark, int unless_failed";

/// A launch of so many threads a block. Two blocks at a time are enough where threads walk along rows: with
/// registers to spare for them, the reads of several steps are on the way at once. Left to itself, the
/// compiler puts each before its use.
std::string kernel_begin(int threads, bool by_rows) {
  return "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads) +
         (by_rows ? ", 2" : "") + ") kernel(";
}

/// Its buffers, the first of which is `b` with this number.
std::string parameters(const Kernel& kernel, size_t first) {
  std::string text;
  for (const auto& buffer : kernel.buffers)
    text += std::string(buffer.written ? "" : "const ") + memory_type(buffer.dtype) + "* b" +
            std::to_string(first++) + ", ";
  return text;
}

class Emitter {
 public:
  explicit Emitter(const Kernel& kernel) : kernel_(kernel), layout_(layout_of(kernel)) { find_varying(); }

  /// What a launch of this kernel alone consists of.
  std::string whole() {
    return kernel_begin(layout_.threads(), layout_.lanes > 1) + parameters(kernel_, 0) + last_parameters +
           ") {\n  const unsigned block = blockIdx.x, blocks = gridDim.x;\n" + body();
  }

  /// A function that does the kernel's work in `blocks` of the blocks of a launch.
  std::string part() {
    return "__device__ __forceinline__ void part(" + parameters(kernel_, 0) + last_parameters +
           ", unsigned block, unsigned blocks) {\n" + body();
  }

  std::string index_type() const {
    return std::string("typedef ") + (layout_.narrow ? "int" : "i64") + " idx;\n";
  }

 private:
  std::string body() {
    for (const auto& i : kernel_.code)
      if (i.once || i.over_rows || i.column) throw Error("[cuda] no code for reductions over rows yet");
    std::ostringstream text;
    text << "  begin();\n  if (unless_failed && *failed) return;\n";
    Code row;
    row_ = &row;
    for (int phase = 0; phase < kernel_.phases; ++phase) run_phase(phase);
    for (const auto& i : kernel_.code)
      if (i.op == Op::store && !i.full) store(i, row);
    text << points_begin() << to_text(row, /*reduced=*/false) << "  }\n}\n";
    return text.str();
  }

  /// The code at a point, or at a reduced point: what is the same for all neighbours that a thread takes at
  /// once, what is done for each of them, and what is done with them all.
  struct Code {
    std::ostringstream before, each, after;
    std::map<int, std::string> names;
    std::map<int, std::string> arrays;  // of loads that read all neighbours at once
  };

  const Instruction& at(int n) const { return kernel_.code[static_cast<size_t>(n)]; }
  DType dtype_of(int buffer) const { return kernel_.buffers[static_cast<size_t>(buffer)].dtype; }

  // --- which values differ between neighbours

  void find_varying() {
    varies_.assign(kernel_.code.size(), false);
    if (layout_.width == 1) return;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (codegen::is_reduction(i.op)) continue;
      varies_[n] = place_varies(i) || i.index.uses(layout_.vector_dim) ||
                   std::ranges::any_of(i.args, [&](int arg) { return varies_[static_cast<size_t>(arg)]; });
    }
  }
  bool varies(int n) const { return n >= 0 && varies_[static_cast<size_t>(n)]; }
  /// Its place, and not only by the step to the neighbour.
  bool place_varies(const Instruction& i) const {
    return varies(i.guard) || std::ranges::any_of(i.indirect, [&](const auto& x) { return varies(x.value); });
  }
  /// Neighbours are read or written at once.
  bool is_at_once(const Instruction& i) const {
    return layout_.width > 1 && !i.adds && !place_varies(i) && steps_by_one(i.index, layout_.vector_dim);
  }
  /// With nothing to ask where the buffer begins at a multiple of 16 bytes: what is not known until the
  /// kernel runs keeps the loads of several steps from being on the way at once.
  const char* copy_of(const Instruction& i) const {
    const auto fits = [&](int64_t n) { return n % layout_.width == 0; };
    const bool known = fits(i.index.constant()) &&
                       std::ranges::all_of(i.indirect, [&](const auto& x) { return fits(x.stride); }) &&
                       std::ranges::all_of(i.index.terms(), [&](const Index::Term& term) {
                         return fits(term.coefficient) || (term.atom->kind == Atom::Kind::variable &&
                                                           term.atom->variable == layout_.vector_dim);
                       });
    return known ? "copy_aligned<" : "copy_many<";
  }

  // --- loops

  /// The thread's point, or first of its neighbours, and how it goes on to the next.
  std::string points_begin() const {
    const auto& l = layout_;
    const bool by_points = l.lanes == 1;
    const int at_once = l.points * (by_points ? l.width : 1);
    std::ostringstream text;
    if (by_points)
      text << "  const int slot = threadIdx.x;\n";
    else if (l.rows)
      text << "  const int lane = threadIdx.x % " << l.lanes << ", slot = threadIdx.x / " << l.lanes << ";\n";
    else
      text << "  const int slot = threadIdx.x % " << l.points << ", lane = threadIdx.x / " << l.points
           << ";\n";
    const auto points = number_of_points(kernel_.kept_points());
    text << "  for (idx first = idx(block) * " << at_once << "; first < " << points
         << "; first += idx(blocks) * " << at_once << ") {\n";
    if (has_idle_points()) {
      text << "    const bool live = first + slot < " << points
           << ";\n    const idx point = live ? first + slot : " << points << " - 1;\n";
    } else {
      text << "    const idx point = first + slot" << (by_points ? " * " + std::to_string(l.width) : "")
           << ";\n    if (point >= " << points << ") break;\n";
    }
    return text.str();
  }

  /// Threads without a point have to meet the others.
  bool has_idle_points() const {
    return !layout_.rows || (layout_.lanes > warp && kernel_.kept_points() % layout_.points != 0);
  }

  static std::string number_of_points(int64_t n) { return "idx(" + std::to_string(n) + "ll)"; }

  /// The loop variables of the kept or the reduced dimensions, from the number of a point among them.
  std::string variables(bool reduced, const std::string& point) const {
    std::ostringstream text;
    int64_t inner = 1;
    const int64_t all = reduced ? kernel_.reduced_points() : kernel_.kept_points();
    for (size_t d = kernel_.dims.size(); d-- > 0;) {
      if (kernel_.dims[d].reduced != reduced) continue;
      const int64_t extent = kernel_.dims[d].extent;
      text << "    const idx i" << d << " = " << point;
      if (inner > 1) text << " / " << inner;
      if (inner * extent < all) text << " % " << extent;
      text << ";\n";
      inner *= extent;
    }
    return text.str();
  }

  std::string to_text(const Code& code, bool reduced) const {
    std::ostringstream text;
    const bool neighbours = layout_.width > 1 && (reduced || layout_.lanes == 1);
    text << variables(reduced, reduced ? "r" : "point") << code.before.str();
    if (neighbours) {
      const auto d = std::to_string(layout_.vector_dim);
      text << "    const idx base = i" << d << ";\n#pragma unroll\n    for (int k = 0; k < " << layout_.width
           << "; ++k) {\n    const idx i" << d << " = base + k;\n"
           << code.each.str() << "    }\n";
    } else {
      text << code.each.str();
    }
    text << code.after.str();
    return text.str();
  }

  void run_phase(int phase) {
    std::vector<int> reductions;
    std::vector<const Instruction*> stores;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (codegen::is_reduction(i.op) && i.phase == phase + 1) reductions.push_back(static_cast<int>(n));
      if (i.op == Op::store && i.full && i.phase == phase) stores.push_back(&i);
    }
    if (reductions.empty() && stores.empty()) return;
    Code body;
    loop_ = &body;
    for (const auto* i : stores) store(*i, body);
    for (const int n : reductions) add_to_total(n, body);
    loop_ = nullptr;
    auto& out = row_->before;
    const auto points = number_of_points(kernel_.reduced_points());
    const int64_t at_once = int64_t{layout_.lanes} * layout_.width;
    const std::string first = layout_.lanes == 1 ? "0" : "lane * " + std::to_string(layout_.width);
    if (layout_.held_steps > 0) {
      out << "#pragma unroll\n    for (int step = 0; step < " << layout_.held_steps << "; ++step) {\n"
          << "    const idx r = step * " << at_once << " + " << first << ";\n";
      if (layout_.held_steps * at_once != kernel_.reduced_points())
        out << "    if (r >= " << points << ") break;\n";
    } else {
      // Several steps read before the first of them adds.
      out << "#pragma unroll 4\n    for (idx r = " << first << "; r < " << points << "; r += " << at_once
          << ") {\n";
    }
    out << to_text(body, /*reduced=*/true) << "    }\n";
    for (const int n : reductions) finish(n);
    if (reads_what_it_writes())
      out << (layout_.lanes > warp || !layout_.rows ? "    __syncthreads();\n"
              : layout_.lanes == warp               ? "    __syncwarp();\n"
                                                    : "");
  }

  /// What a thread wrote into a row another may read in the next phase.
  bool reads_what_it_writes() const {
    return std::ranges::any_of(kernel_.code, [&](const Instruction& i) {
      return i.op == Op::load && kernel_.buffers[static_cast<size_t>(i.buffer)].written;
    });
  }

  // --- values

  /// The name of an instruction's value; what is needed for it is written where it belongs.
  std::string value(int n) {
    const auto& i = at(n);
    auto& code = i.full ? *loop_ : *row_;
    if (const auto found = code.names.find(n); found != code.names.end()) return found->second;
    if (codegen::is_reduction(i.op)) throw std::logic_error("a reduction is used before it is there");
    std::vector<std::string> args;
    args.reserve(i.args.size());
    for (const int arg : i.args) args.push_back(value(arg));
    auto& out = varies(n) ? code.each : code.before;
    std::string text;
    if (i.op == Op::load)
      text = load(n, code, out);
    else if (i.op == Op::iota)
      text = place_text(i.index);
    else if (i.op == Op::constant)
      text = ir::is_floating(i.dtype) ? number(i.number, i.dtype) : std::to_string(i.integer) + "ll";
    else
      text = computed(i, args);
    const auto name = "v" + std::to_string(n) + "_" + std::to_string(names_++);
    out << "    const " << register_type(i.dtype) << " " << name << " = " << text << ";\n";
    return code.names[n] = name;
  }

  static std::string place_text(const Index& index) {
    std::ostringstream text;
    text << "(" << index.constant();
    for (const auto& [coefficient, atom] : index.terms()) {
      text << " + ";
      if (coefficient != 1) text << coefficient << " * ";
      switch (atom->kind) {
        case Atom::Kind::variable:
          text << "i" << atom->variable;
          break;
        case Atom::Kind::quotient:
        case Atom::Kind::remainder: {
          // Rounded down: shifted to where C's division does so.
          const int64_t divisor = atom->divisor;
          const int64_t low = atom->inside.min();
          const int64_t shift = low < 0 ? (-low + divisor - 1) / divisor : 0;
          const auto inside = "(" + place_text(atom->inside) + " + " + std::to_string(shift * divisor) + ")";
          if (atom->kind == Atom::Kind::quotient)
            text << "(" << inside << " / " << divisor << " - " << shift << ")";
          else
            text << "(" << inside << " % " << divisor << ")";
        }
      }
    }
    text << ")";
    return text.str();
  }

  /// Where an instruction reads or writes; where an index is out of range, or the guard is not there, 0.
  std::string place_of(const Instruction& i, std::ostream& out) {
    const auto guard = i.guard >= 0 ? value(i.guard) : "";
    auto place = place_text(i.index);
    for (const auto& x : i.indirect) {
      const auto index = "i64(" + value(x.value) + ")";
      const auto name = "p" + std::to_string(names_++);
      out << "    i64 " << name << " = " << index << ";\n";
      if (x.wraps) out << "    if (" << name << " < 0) " << name << " += " << x.size << "ll;\n";
      out << "    if (" << name << " < 0 || " << name << " >= " << x.size << "ll) { "
          << (guard.empty() ? "fail(failed, mark); " : "if (" + guard + ") fail(failed, mark); ") << name
          << " = 0; }\n";
      place += " + " + std::to_string(x.stride) + "ll * " + name;
    }
    return guard.empty() || i.adds ? place : "(" + guard + " ? " + place + " : 0)";
  }

  std::string load(int n, Code& code, std::ostream& out) {
    const auto& i = at(n);
    const auto dtype = dtype_of(i.buffer);
    const auto buffer = "b" + std::to_string(i.buffer);
    if (!is_at_once(i)) return in_register(dtype, buffer + "[" + place_of(i, out) + "]");
    const auto width = std::to_string(layout_.width);
    const bool held =
        i.full && layout_.held_steps > 0 && !kernel_.buffers[static_cast<size_t>(i.buffer)].written;
    auto& there = held ? held_[n] : code.arrays[n];
    std::string first = "0";  // of the neighbours, in the array
    if (held) first = "step * " + width;
    if (there.empty()) {
      there = "t" + std::to_string(n) + "_" + std::to_string(names_++);
      (held ? row_->before : code.before) << "    alignas(16) " << memory_type(dtype) << " " << there << "["
                                          << layout_.width * (held ? layout_.held_steps : 1) << "];\n";
      const auto place = place_of(i, code.before);
      code.before << "    " << copy_of(i) << width << ">(" << there << " + " << first << ", " << buffer
                  << " + " << place << ", " << buffer << " + " << place << ");\n";
    }
    return in_register(dtype, there + "[" + first + " + k]");
  }

  void store(const Instruction& i, Code& code) {
    const auto x = value(i.args[0]);
    const auto guard = i.guard >= 0 ? value(i.guard) : "";
    const auto dtype = dtype_of(i.buffer);
    const auto stored = in_memory(at(i.args[0]).dtype, dtype, x);
    std::string condition = has_idle_points() ? "live" : "";
    if (!i.full && layout_.lanes > 1)
      condition += (condition.empty() ? "" : " && ") + std::string("lane == 0");
    const auto only_if = condition.empty() ? std::string() : "if (" + condition + ") ";
    if (is_at_once(i)) {
      const auto place = place_of(i, code.before);
      const auto array = "o" + std::to_string(names_++), buffer = "b" + std::to_string(i.buffer);
      code.before << "    alignas(16) " << memory_type(dtype) << " " << array << "[" << layout_.width
                  << "];\n";
      code.each << "    " << array << "[k] = " << stored << ";\n";
      code.after << "    " << only_if << copy_of(i) << layout_.width << ">(" << buffer << " + " << place
                 << ", " << array << ", " << buffer << " + " << place << ");\n";
      return;
    }
    const auto place = place_of(i, code.each);
    const auto target = "b" + std::to_string(i.buffer) + "[" + place + "]";
    code.each << "    " << only_if
              << (i.adds ? addition(i, guard, target, x, dtype) : target + " = " + stored + ";") << "\n";
  }

  /// What is out of range adds nothing.
  std::string addition(const Instruction& i, const std::string& guard, const std::string& target,
                       const std::string& x, DType dtype) {
    std::string counts = guard.empty() ? "true" : guard;
    for (const auto& indirect : i.indirect) {
      const auto index = "i64(" + value(indirect.value) + ")";
      const auto size = std::to_string(indirect.size) + "ll";
      counts += " && " + index + " < " + size + " && " + index + " >= " + (indirect.wraps ? "-" + size : "0");
    }
    const auto made = i.takes ? x : "(" + in_register(dtype, target) + " + " + x + ")";
    return "if (" + counts + ") " + target + " = " + in_memory(at(i.args[0]).dtype, dtype, made) + ";";
  }

  // --- reductions

  void add_to_total(int n, Code& body) {
    const auto& i = at(n);
    const auto total = "a" + std::to_string(n);
    const auto x = value(i.args[0]);
    const auto dtype = at(i.args[0]).dtype;
    row_->before << "    " << register_type(dtype) << " " << total << " = " << identity(i.op, dtype) << ";\n";
    if (i.args.size() == 2) {
      row_->before << "    i64 " << total << "p = -1;\n";
      const auto place = value(i.args[1]);
      body.each << "    if (" << wins(i, x, place, total, total + "p") << ") { " << total << " = " << x
                << "; " << total << "p = " << place << "; }\n";
    } else {
      body.each << "    " << total << " = " << combined(i.op, total, x) << ";\n";
    }
  }

  static std::string wins(const Instruction& i, const std::string& x, const std::string& place,
                          const std::string& y, const std::string& where) {
    return "wins(" + std::string(i.op == Op::reduce_argmax ? "true" : "false") + ", " + x + ", " + place +
           ", " + y + ", " + where + ")";
  }

  /// One total with another, which is in variables `x` and, where a place is looked for, `xp`.
  static std::string join(const Instruction& i, const std::string& total, const std::string& x) {
    if (i.args.size() == 2)
      return "if (" + wins(i, x, x + "p", total, total + "p") + ") { " + total + " = " + x + "; " + total +
             "p = " + x + "p; }";
    return total + " = " + combined(i.op, total, x) + ";";
  }

  /// All lanes get what they have found together, in an order that does not depend on when they run.
  void finish(int n) {
    const auto& i = at(n);
    const std::string type = register_type(at(i.args[0]).dtype), total = "a" + std::to_string(n);
    const bool placed = i.args.size() == 2;
    auto& out = row_->before;
    row_->names[n] = placed ? total + "p" : total;
    if (layout_.lanes == 1) return;
    if (layout_.rows) {
      out << "    for (int d = 16; d > 0; d /= 2) {\n      const " << type << " x = from_lane(" << total
          << ", d);\n";
      if (placed) out << "      const i64 xp = from_lane(" << total << "p, d);\n";
      out << "      " << join(i, total, "x") << "\n    }\n";
      if (layout_.lanes > warp)
        through_memory(
            i, type, total,
            {.parts = layout_.lanes / warp,
             .place = "threadIdx.x / 32",
             .first = layout_.points > 1 ? "slot * " + std::to_string(layout_.lanes / warp) + " + " : "",
             .who = "threadIdx.x % 32 == 0"});
    } else {
      through_memory(i, type, total,
                     {.parts = layout_.lanes, .place = "threadIdx.x", .step = " * 32 + slot"});
    }
  }

  /// How what several threads found lies in memory that they share: `parts` of each point, the first of them
  /// at `first`, one at n being `first` + n `step`.
  struct Shared {
    int parts;
    std::string place, first = {}, step = {}, who = {};  // where a thread puts its own, and which do
  };

  void through_memory(const Instruction& i, const std::string& type, const std::string& total,
                      const Shared& how) {
    auto& out = row_->before;
    const bool placed = i.args.size() == 2;
    const auto shared = "s" + total;
    const int size = layout_.points * how.parts;
    const auto at = [&](const std::string& n) { return "[" + how.first + n + how.step + "]"; };
    out << "    __shared__ " << type << " " << shared << "[" << size << "];\n";
    if (placed) out << "    __shared__ i64 " << shared << "p[" << size << "];\n";
    out << "    " << (how.who.empty() ? "" : "if (" + how.who + ") ") << "{ " << shared << "[" << how.place
        << "] = " << total << ";";
    if (placed) out << " " << shared << "p[" << how.place << "] = " << total << "p;";
    out << " }\n    __syncthreads();\n    " << total << " = " << shared << at("0") << ";\n";
    if (placed) out << "    " << total << "p = " << shared << "p" << at("0") << ";\n";
    out << "    for (int w = 1; w < " << how.parts << "; ++w) {\n      const " << type << " x = " << shared
        << at("w") << ";\n";
    if (placed) out << "      const i64 xp = " << shared << "p" << at("w") << ";\n";
    out << "      " << join(i, total, "x") << "\n    }\n    __syncthreads();\n";
  }

  const Kernel& kernel_;
  Layout layout_;
  std::vector<bool> varies_;
  std::map<int, std::string> held_;  // loads that are in registers from phase to phase
  Code* row_ = nullptr;
  Code* loop_ = nullptr;  // of the phase that is being written
  int names_ = 0;
};

}  // namespace

namespace {

/// Kernels of a launch that have the same code, and where the buffers of each begin among those of all.
struct Alike {
  const Kernel* kernel;
  std::string part;
  std::vector<size_t> first;
};

std::vector<Alike> sorted_by_code(const Kernels& kernels) {
  std::vector<Alike> all;
  size_t first = 0;
  for (const auto* kernel : kernels) {
    Emitter emitter(*kernel);
    const auto text = emitter.index_type() + emitter.part();
    auto found = std::ranges::find(all, text, &Alike::part);
    if (found == all.end()) found = all.insert(all.end(), {kernel, text, {}});
    found->first.push_back(first);
    first += kernel->buffers.size();
  }
  return all;
}

/// The call of those that have the same code: each has as many blocks.
std::string call_of(const Alike& alike, size_t number, int64_t blocks) {
  std::ostringstream text;
  const auto all = blocks * static_cast<int64_t>(alike.first.size());
  text << "  if (block < " << all << ") {\n    const unsigned which = block / " << blocks
       << ";\n    return part" << number << "::part(";
  for (size_t b = 0; b < alike.kernel->buffers.size(); ++b) {
    for (size_t k = 0; k + 1 < alike.first.size(); ++k)
      text << "which == " << k << " ? b" << alike.first[k] + b << " : ";
    text << "b" << alike.first.back() + b << ", ";
  }
  text << "failed, mark, unless_failed, block % " << blocks << ", " << blocks << ");\n  }\n  block -= " << all
       << ";\n";
  return text.str();
}

}  // namespace

std::string function_of(const Kernels& kernels) {
  if (kernels.size() == 1) {
    Emitter emitter(*kernels.front());
    return emitter.index_type() + emitter.whole();
  }
  std::string parts, buffers, calls;
  size_t count = 0;
  bool by_rows = false;
  for (const auto* kernel : kernels) {
    buffers += parameters(*kernel, count);
    count += kernel->buffers.size();
    by_rows |= layout_of(*kernel).lanes > 1;
  }
  const auto all = sorted_by_code(kernels);
  for (size_t i = 0; i < all.size(); ++i) {
    parts += "namespace part" + std::to_string(i) + " {\n" + all[i].part + "}\n";
    calls += call_of(all[i], i, shape_of({all[i].kernel}).blocks);
  }
  return parts + kernel_begin(shape_of(kernels).threads, by_rows) + buffers + last_parameters +
         ") {\n  unsigned block = blockIdx.x;\n" + calls + "}\n";
}

bool asks_for_alignment(const std::string& function) {
  return function.find("copy_aligned<") != std::string::npos;
}

std::string code_of(const Kernels& kernels) { return conversions() + (helpers() + function_of(kernels)); }

std::string code_for_any_alignment(const Kernels& kernels) {
  return conversions() + (helpers() + (any_alignment + function_of(kernels)));
}

std::vector<Kernels> launches_of(const codegen::Schedule& schedule) {
  std::vector<Kernels> all;
  for (const auto& step : schedule.steps) {
    if (step.external) continue;
    if (!step.with_last) all.emplace_back();
    all.back().push_back(&step.kernel);
  }
  return all;
}

std::string code_of(const codegen::Schedule& schedule) {
  std::string text;
  for (const auto& kernels : launches_of(schedule)) {
    for (const auto* kernel : kernels) text += to_string(*kernel);
    text += code_of(kernels) + "\n";
  }
  return text;
}

Shape shape_of(const Kernels& kernels) {
  Shape shape{.blocks = 0};
  for (const auto* kernel : kernels) {
    const auto layout = layout_of(*kernel);
    const int64_t at_once = int64_t{layout.points} * (layout.lanes == 1 ? layout.width : 1);
    const int64_t blocks = (kernel->kept_points() + at_once - 1) / at_once;
    shape.blocks += std::clamp<int64_t>(blocks, 1, most_blocks);
    shape.threads = layout.threads();
  }
  return shape;
}

int64_t launch_kind(const Kernel& kernel) {
  // More, and the GPU is full for so long that a launch of its own costs next to nothing.
  constexpr int64_t most_points = 1 << 22;
  const bool is_small = kernel.kept_points() * std::max<int64_t>(kernel.reduced_points(), 1) <= most_points;
  return is_small ? layout_of(kernel).threads() : 0;
}

}  // namespace graft::cuda
