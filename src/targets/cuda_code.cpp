#include "targets/cuda_code.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "graft/error.h"

namespace graft::cuda {
namespace {

using codegen::Atom;
using codegen::Index;
using codegen::Instruction;
using codegen::Kernel;
using codegen::Op;
using ir::DType;

constexpr int64_t long_enough_for_a_block = 128;
constexpr int threads = 256;
constexpr int64_t most_blocks = 1 << 20;  // each takes several points, if there are more

bool by_blocks(const Kernel& kernel) {
  return kernel.phases > 0 && !kernel.scatters() && kernel.reduced_points() >= long_enough_for_a_block;
}

/// What every kernel may use.
constexpr const char* prelude = R"(typedef long long i64; typedef unsigned short u16;
__device__ __forceinline__ float half_to_float(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ __forceinline__ u16 float_to_half(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
__device__ __forceinline__ float bf16_to_float(u16 x) { return __int_as_float(static_cast<int>(x) << 16); }
__device__ __forceinline__ u16 float_to_bf16(float x) {
  if (x != x) return 0x7fff;
  const unsigned bits = __float_as_int(x);
  return static_cast<u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <class T> __device__ __forceinline__ T larger(T x, T y) { return x != x ? x : x > y ? x : y; }
template <class T> __device__ __forceinline__ T smaller(T x, T y) { return x != x ? x : x < y ? x : y; }
template <class T> __device__ __forceinline__ T sign_of(T x) { return static_cast<T>((x > T(0)) - (x < T(0))); }
template <class T> __device__ __forceinline__ T sigmoid_of(T x) { const T e = exp(-fabs(x)); return (x < T(0) ? e : T(1)) / (T(1) + e); }
template <class T> __device__ __forceinline__ T remainder_of(T x, T y) { const T r = fmod(x, y); return r != T(0) && ((r < T(0)) != (y < T(0))) ? r + y : r; }
template <class T> __device__ __forceinline__ bool wins(bool largest, T x, i64 at, T y, i64 where) {
  if (at < 0) return false;
  if (where < 0) return true;
  const bool x_nan = x != x, y_nan = y != y;
  if (x_nan != y_nan) return x_nan;
  if (!x_nan && x != y) return largest ? x > y : x < y;
  return at < where;
}
)";

const char* register_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "double";
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return "float";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "int";
    case DType::i16:
      return "short";
    case DType::i8:
      return "signed char";
    case DType::u8:
      return "unsigned char";
    case DType::boolean:
      return "bool";
    default:
      throw Error("[cuda] no code for numbers of type " + std::string(ir::name_of(dtype)));
  }
}

const char* memory_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? "u16" : register_type(dtype);
}

std::string number(double x, DType dtype) {
  const bool wide = dtype == DType::f64;
  if (std::isnan(x))
    return wide ? "__longlong_as_double(0x7ff8000000000000ll)" : "__int_as_float(0x7fc00000)";
  if (std::isinf(x)) {
    const std::string size =
        wide ? "__longlong_as_double(0x7ff0000000000000ll)" : "__int_as_float(0x7f800000)";
    return x < 0 ? "(-" + size + ")" : size;
  }
  std::ostringstream text;
  text << std::hexfloat << (wide ? x : static_cast<double>(static_cast<float>(x)));
  return "(" + text.str() + (wide ? ")" : "f)");
}

class Emitter {
 public:
  explicit Emitter(const Kernel& kernel) : kernel_(kernel), blocks_(by_blocks(kernel)) {}

  std::string run() {
    for (const auto& i : kernel_.code)
      if (i.once || i.over_rows || i.column) throw Error("[cuda] no code for reductions over rows yet");
    std::ostringstream text;
    text << prelude << "extern \"C\" __global__ void kernel(";
    for (size_t i = 0; i < kernel_.buffers.size(); ++i)
      text << (kernel_.buffers[i].written ? "" : "const ") << memory_type(kernel_.buffers[i].dtype) << "* b"
           << i << ", ";
    text << "int* failed, int mark) {\n";
    text << "  for (i64 point = " << (blocks_ ? "blockIdx.x" : "blockIdx.x * i64(blockDim.x) + threadIdx.x")
         << "; point < " << kernel_.kept_points() << "ll; point += gridDim.x"
         << (blocks_ ? "" : " * i64(blockDim.x)") << ") {\n";
    row_ << variables(false, "point");
    for (int phase = 0; phase < kernel_.phases; ++phase) run_phase(phase);
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (const auto& i = kernel_.code[n]; i.op == Op::store && !i.full) store(i, row_, row_values_, true);
    text << row_.str() << "  }\n}\n";
    return text.str();
  }

 private:
  using Known = std::map<int, std::string>;

  /// The loop variables of the kept or the reduced dimensions, from the number of a point among them.
  std::string variables(bool reduced, const std::string& point) const {
    std::ostringstream text;
    int64_t inner = 1;
    for (size_t d = kernel_.dims.size(); d-- > 0;) {
      if (kernel_.dims[d].reduced != reduced) continue;
      text << "    const i64 i" << d << " = " << point;
      if (inner > 1) text << " / " << inner << "ll";
      text << " % " << kernel_.dims[d].extent << "ll;\n";
      inner *= kernel_.dims[d].extent;
    }
    return text.str();
  }

  static std::string to_text(const Index& index) {
    std::ostringstream text;
    text << "(" << index.constant() << "ll";
    for (const auto& [coefficient, atom] : index.terms()) {
      text << " + " << coefficient << "ll * ";
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
          const auto inside = "(" + to_text(atom->inside) + " + " + std::to_string(shift * divisor) + "ll)";
          if (atom->kind == Atom::Kind::quotient)
            text << "(" << inside << " / " << divisor << "ll - " << shift << "ll)";
          else
            text << "(" << inside << " % " << divisor << "ll)";
        }
      }
    }
    text << ")";
    return text.str();
  }

  /// The name of an instruction's value; what is needed for it is written where it belongs.
  std::string value(int n, std::ostream& loop, Known& known) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    auto& values = i.full ? known : row_values_;
    std::ostream& out = i.full ? loop : row_;
    if (const auto found = values.find(n); found != values.end()) return found->second;
    if (codegen::is_reduction(i.op)) throw std::logic_error("a reduction is used before it is there");
    std::vector<std::string> args;
    args.reserve(i.args.size());
    for (const int arg : i.args) args.push_back(value(arg, loop, known));
    std::string text;
    if (i.op == Op::load)
      text = load(i, loop, known, out);
    else if (i.op == Op::iota)
      text = to_text(i.index);
    else if (i.op == Op::constant)
      text = ir::is_floating(i.dtype) ? number(i.number, i.dtype) : std::to_string(i.integer) + "ll";
    else
      text = computed(i, args);
    const auto name = "v" + std::to_string(n) + "_" + std::to_string(names_++);
    out << "    const " << register_type(i.dtype) << " " << name << " = " << text << ";\n";
    return values[n] = name;
  }

  /// Where an instruction reads or writes; where an index is out of range, or the guard is not there, 0.
  std::string place_of(const Instruction& i, std::ostream& loop, Known& known, std::ostream& out) {
    std::string guard = i.guard >= 0 ? value(i.guard, loop, known) : "";
    auto place = to_text(i.index);
    for (const auto& x : i.indirect) {
      const auto at = "i64(" + value(x.value, loop, known) + ")";
      const auto name = "p" + std::to_string(names_++);
      out << "    i64 " << name << " = " << at << ";\n";
      if (x.wraps) out << "    if (" << name << " < 0) " << name << " += " << x.size << "ll;\n";
      out << "    if (" << name << " < 0 || " << name << " >= " << x.size << "ll) { "
          << (guard.empty() ? "*failed = mark; " : "if (" + guard + ") *failed = mark; ") << name
          << " = 0; }\n";
      place += " + " + std::to_string(x.stride) + "ll * " + name;
    }
    return guard.empty() || i.adds ? place : "(" + guard + " ? " + place + " : 0ll)";
  }

  std::string load(const Instruction& i, std::ostream& loop, Known& known, std::ostream& out) {
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    auto element = "b" + std::to_string(i.buffer) + "[" + place_of(i, loop, known, out) + "]";
    if (dtype == DType::f16) return "half_to_float(" + element + ")";
    if (dtype == DType::bf16) return "bf16_to_float(" + element + ")";
    return element;
  }

  static std::string in_memory(DType held, DType memory, const std::string& x) {
    if (memory == DType::f16) return "float_to_half(float(" + x + "))";
    if (memory == DType::bf16) return "float_to_bf16(float(" + x + "))";
    return cast(held, memory, x);
  }

  static std::string cast(DType from, DType to, const std::string& x) {
    if (to == DType::boolean) return "(" + x + " != 0)";
    const auto type = std::string(register_type(to));
    // Through a wide integer, as ATen's kernels go: what does not fit leaves its low bits.
    if (ir::is_floating(from) && !ir::is_floating(to) && to != DType::i64) return type + "(i64(" + x + "))";
    return "static_cast<" + type + ">(" + x + ")";
  }

  void store(const Instruction& i, std::ostream& out, Known& known, bool once_per_row) {
    const auto buffer = static_cast<size_t>(i.buffer);
    const auto x = value(i.args[0], out, known);
    const auto guard = i.guard >= 0 ? value(i.guard, out, known) : "";
    const auto place = place_of(i, out, known, out);
    const auto dtype = kernel_.buffers[buffer].dtype;
    const auto held = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    const auto target = "b" + std::to_string(i.buffer) + "[" + place + "]";
    auto text = target + " = " + in_memory(held, dtype, x) + ";";
    if (i.adds) {
      const auto before = dtype == DType::f16    ? "half_to_float(" + target + ")"
                          : dtype == DType::bf16 ? "bf16_to_float(" + target + ")"
                                                 : target;
      text = target + " = " + in_memory(held, dtype, "(" + before + " + " + x + ")") + ";";
      // What is out of range adds nothing.
      std::string counts = guard.empty() ? "true" : guard;
      for (const auto& indirect : i.indirect) {
        const auto at = "i64(" + value(indirect.value, out, known) + ")";
        const auto size = std::to_string(indirect.size) + "ll";
        counts += " && " + at + " < " + size + " && " + at + " >= " + (indirect.wraps ? "-" + size : "0");
      }
      text = "if (" + counts + ") " + text;
    }
    out << "    " << (once_per_row && blocks_ ? "if (threadIdx.x == 0) " : "") << text << "\n";
  }

  static std::string computed(const Instruction& i, const std::vector<std::string>& a);

  static std::string identity(Op op, DType dtype) {
    const bool real = ir::is_floating(dtype);
    const auto extreme = [&](bool low) -> std::string {
      if (real) return number(low ? -INFINITY : INFINITY, dtype);
      switch (dtype) {
        case DType::boolean:
          return low ? "false" : "true";
        case DType::i64:
          return low ? "(-9223372036854775807ll - 1)" : "9223372036854775807ll";
        case DType::i32:
          return low ? "(-2147483647 - 1)" : "2147483647";
        case DType::i16:
          return low ? "-32768" : "32767";
        case DType::i8:
          return low ? "-128" : "127";
        default:
          return low ? "0" : "255";
      }
    };
    switch (op) {
      case Op::reduce_prod:
      case Op::reduce_all:
        return "1";
      case Op::reduce_max:
      case Op::reduce_argmax:
        return extreme(true);
      case Op::reduce_min:
      case Op::reduce_argmin:
        return extreme(false);
      default:
        return "0";
    }
  }

  static std::string combined(Op op, const std::string& a, const std::string& b) {
    switch (op) {
      case Op::reduce_sum:
        return a + " + " + b;
      case Op::reduce_prod:
        return a + " * " + b;
      case Op::reduce_max:
        return "larger(" + b + ", " + a + ")";
      case Op::reduce_min:
        return "smaller(" + b + ", " + a + ")";
      case Op::reduce_any:
        return a + " || " + b;
      default:
        return a + " && " + b;
    }
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
    const auto at = "r" + std::to_string(names_++);
    std::ostringstream body;
    Known known;
    body << variables(true, at);
    for (const auto* i : stores) store(*i, body, known, false);
    for (const int n : reductions) {
      const auto& i = kernel_.code[static_cast<size_t>(n)];
      const auto total = "a" + std::to_string(n);
      const auto x = value(i.args[0], body, known);
      const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
      row_ << "    " << register_type(dtype) << " " << total << " = " << identity(i.op, dtype) << ";\n";
      if (i.args.size() == 2) {
        row_ << "    i64 " << total << "p = -1;\n";
        const auto place = value(i.args[1], body, known);
        body << "    if (wins(" << (i.op == Op::reduce_argmax) << ", " << x << ", " << place << ", " << total
             << ", " << total << "p)) { " << total << " = " << x << "; " << total << "p = " << place
             << "; }\n";
      } else {
        body << "    " << total << " = " << combined(i.op, total, x) << ";\n";
      }
    }
    row_ << "    for (i64 " << at << " = " << (blocks_ ? "threadIdx.x" : "0") << "; " << at << " < "
         << kernel_.reduced_points() << "ll; " << at << " += " << (blocks_ ? "blockDim.x" : "1") << ") {\n"
         << body.str() << "    }\n";
    for (const int n : reductions) finish(n);
    // What a thread wrote into a row another may read in the next phase.
    if (blocks_) row_ << "    __syncthreads();\n";
  }

  /// All threads of a block get what they have found together.
  void finish(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    const auto total = "a" + std::to_string(n);
    const bool placed = i.args.size() == 2;
    if (blocks_) {
      const auto shared = "s" + std::to_string(n), width = std::to_string(threads);
      row_ << "    __shared__ " << register_type(dtype) << " " << shared << "[" << width << "];\n";
      if (placed) row_ << "    __shared__ i64 " << shared << "p[" << width << "];\n";
      row_ << "    " << shared << "[threadIdx.x] = " << total << ";\n";
      if (placed) row_ << "    " << shared << "p[threadIdx.x] = " << total << "p;\n";
      const auto mine = shared + "[threadIdx.x]", other = shared + "[threadIdx.x + step]";
      row_ << "    __syncthreads();\n    for (int step = " << threads / 2 << "; step > 0; step /= 2) {\n"
           << "      if (threadIdx.x < step) {\n";
      if (placed)
        row_ << "        if (wins(" << (i.op == Op::reduce_argmax) << ", " << other << ", " << shared
             << "p[threadIdx.x + step], " << mine << ", " << shared << "p[threadIdx.x])) { " << mine << " = "
             << other << "; " << shared << "p[threadIdx.x] = " << shared << "p[threadIdx.x + step]; }\n";
      else
        row_ << "        " << mine << " = " << combined(i.op, mine, other) << ";\n";
      row_ << "      }\n      __syncthreads();\n    }\n    " << total << " = " << shared << "[0];\n";
      if (placed) row_ << "    " << total << "p = " << shared << "p[0];\n";
      row_ << "    __syncthreads();\n";
    }
    row_values_[n] = placed ? total + "p" : total;
  }

  const Kernel& kernel_;
  bool blocks_;
  int names_ = 0;
  std::ostringstream row_;
  Known row_values_;
};

std::string Emitter::computed(const Instruction& i, const std::vector<std::string>& a) {
  const bool wide = i.dtype == DType::f64;
  const auto of = [&](const char* name) { return std::string(name) + (wide ? "" : "f") + "(" + a[0] + ")"; };
  const auto between = [&](const char* sign) { return "(" + a[0] + " " + sign + " " + a[1] + ")"; };
  switch (i.op) {
    case Op::cast:
      return i.dtype == DType::boolean  ? "(" + a[0] + " != 0)"
             : i.dtype == DType::f64    ? "double(" + a[0] + ")"
             : ir::is_floating(i.dtype) ? "float(" + a[0] + ")"
             : i.dtype == DType::i64    ? "i64(" + a[0] + ")"
                                        : std::string(register_type(i.dtype)) + "(i64(" + a[0] + "))";
    case Op::round_half:
      return "half_to_float(float_to_half(" + a[0] + "))";
    case Op::round_bf16:
      return "bf16_to_float(float_to_bf16(" + a[0] + "))";
    case Op::neg:
      return "(-" + a[0] + ")";
    case Op::abs:
      return ir::is_floating(i.dtype) ? of("fabs") : "(" + a[0] + " < 0 ? -" + a[0] + " : " + a[0] + ")";
    case Op::sign:
      return "sign_of(" + a[0] + ")";
    case Op::reciprocal:
      return "(1 / " + a[0] + ")";
    case Op::rsqrt:
      return wide ? "(1 / sqrt(" + a[0] + "))" : "(1 / sqrtf(" + a[0] + "))";
    case Op::sqrt:
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::erf:
    case Op::erfc:
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
      return of(std::string(codegen::name_of(i.op)).c_str());
    case Op::round:
      return of("rint");
    case Op::sigmoid:
      return "sigmoid_of(" + a[0] + ")";
    case Op::logical_not:
      return "(!" + a[0] + ")";
    case Op::bitwise_not:
      return i.dtype == DType::boolean ? "(!" + a[0] + ")" : "(~" + a[0] + ")";
    case Op::is_nan:
      return "(" + a[0] + " != " + a[0] + ")";
    case Op::is_inf:
      return "isinf(" + a[0] + ")";
    case Op::add:
      return between("+");
    case Op::sub:
      return between("-");
    case Op::mul:
      return between("*");
    case Op::div:
      return between("/");
    case Op::pow:
      return (wide ? "pow(" : "powf(") + a[0] + ", " + a[1] + ")";
    case Op::maximum:
      return "larger(" + a[0] + ", " + a[1] + ")";
    case Op::minimum:
      return "smaller(" + a[0] + ", " + a[1] + ")";
    case Op::fmod:
      return (wide ? "fmod(" : "fmodf(") + a[0] + ", " + a[1] + ")";
    case Op::remainder:
      return "remainder_of(" + a[0] + ", " + a[1] + ")";
    case Op::eq:
      return between("==");
    case Op::ne:
      return between("!=");
    case Op::lt:
      return between("<");
    case Op::le:
      return between("<=");
    case Op::gt:
      return between(">");
    case Op::ge:
      return between(">=");
    case Op::logical_and:
      return between("&&");
    case Op::logical_or:
      return between("||");
    case Op::logical_xor:
      return between("!=");
    case Op::bitwise_and:
      return between("&");
    case Op::bitwise_or:
      return between("|");
    case Op::bitwise_xor:
      return between("^");
    case Op::select:
      return "(" + a[0] + " ? " + a[1] + " : " + a[2] + ")";
    case Op::fma:
      return (wide ? "fma(" : "fmaf(") + a[0] + ", " + a[1] + ", " + a[2] + ")";
    default:
      throw std::logic_error("no code for " + std::string(codegen::name_of(i.op)));
  }
}

}  // namespace

std::string code_of(const Kernel& kernel) { return Emitter(kernel).run(); }

std::string code_of(const codegen::Schedule& schedule) {
  std::string text;
  for (const auto& step : schedule.steps)
    if (!step.external) text += to_string(step.kernel) + code_of(step.kernel) + "\n";
  return text;
}

Shape shape_of(const Kernel& kernel) {
  const int64_t points = kernel.kept_points();
  const int64_t blocks = by_blocks(kernel) ? points : (points + threads - 1) / threads;
  return {std::clamp<int64_t>(blocks, 1, most_blocks), threads};
}

}  // namespace graft::cuda
