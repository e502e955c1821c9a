// Trials of machine code on made-up data: right code passes, and code that was made for another kernel, or
// that is wrong in one lane, is found out, in vectors and in tails alike.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "codegen/evaluate.h"
#include "codegen/totals.h"
#include "targets/cpu/kernels.h"
#include "targets/cpu/trial.h"

namespace graft::cpu {
namespace {

using codegen::Index;
using codegen::Instruction;
using codegen::Kernel;
using codegen::Op;
using codegen::Real;
using codegen::Whole;
using ir::DType;

constexpr double infinity = std::numeric_limits<double>::infinity();
const auto sizes = testing::Values(1, 3, 8, 9, 16, 64, 67, 1024);

/// Writes a kernel line by line; a line's number is what the next ones name it by.
class Writer {
 public:
  explicit Writer(std::vector<codegen::Dimension> dims) { kernel_.dims = std::move(dims); }
  Index variable(int dim) const {
    return Index::variable(dim, kernel_.dims[static_cast<size_t>(dim)].extent);
  }
  int op(Op op, DType dtype, std::vector<int> args) {
    return add({.op = op, .dtype = dtype, .args = std::move(args)});
  }
  int number(DType dtype, double x) { return add({.op = Op::constant, .dtype = dtype, .number = x}); }
  int integer(DType dtype, int64_t x) { return add({.op = Op::constant, .dtype = dtype, .integer = x}); }
  int iota(const Index& index) { return add({.op = Op::iota, .dtype = DType::i64, .index = index}); }
  int load(DType memory, DType dtype, const Index& index, int64_t elements, int guard = -1) {
    kernel_.buffers.push_back({memory});
    return add({.op = Op::load,
                .dtype = dtype,
                .buffer = static_cast<int>(kernel_.buffers.size()) - 1,
                .index = index,
                .elements = elements,
                .guard = guard});
  }
  void store(DType memory, int value, const Index& index) {
    kernel_.buffers.push_back({memory, true});
    add({.op = Op::store,
         .dtype = kernel_.code[static_cast<size_t>(value)].dtype,
         .args = {value},
         .buffer = static_cast<int>(kernel_.buffers.size()) - 1,
         .index = index});
  }
  int add(Instruction instruction) {
    kernel_.code.push_back(std::move(instruction));
    return static_cast<int>(kernel_.code.size()) - 1;
  }
  Kernel finish() {
    codegen::analyse(kernel_);
    return kernel_;
  }

 private:
  Kernel kernel_;
};

MachineKernel compiled(const Kernel& kernel) { return compile_kernels({{&kernel}}, false).kernels[0]; }

/// The code of one kernel, held against the text of another.
Trial try_as(const Kernel& code, const Kernel& text) {
  const auto machine = compiled(code);
  const auto other = plan(text, host());
  EXPECT_EQ(machine.plan.width, other.width);
  EXPECT_EQ(machine.plan.block, other.block);
  EXPECT_EQ(machine.plan.tasks * machine.plan.parts, other.tasks * other.parts);
  return try_kernel(text, machine.plan, machine.function);
}

void expect_right(const Kernel& kernel) {
  const auto trial = try_as(kernel, kernel);
  EXPECT_EQ(trial.fault, "") << to_string(kernel);
  EXPECT_EQ(trial.left_out, "") << to_string(kernel);
  EXPECT_GT(trial.compared, 0);
}

void expect_found(const Kernel& right, const Kernel& wrong) {
  expect_right(right);
  EXPECT_NE(try_as(wrong, right).fault, "") << to_string(right) << "and not\n" << to_string(wrong);
}

DType held(DType memory) { return ir::is_floating(memory) && ir::size_of(memory) == 2 ? DType::f32 : memory; }

/// out[i] = body(a[i], b[i])
using Body = std::function<int(Writer&, DType, int, int)>;
Kernel pointwise(DType memory, int64_t size, const Body& body, DType result) {
  Writer w({{size, false}});
  const auto dtype = held(memory);
  const int a = w.load(memory, dtype, w.variable(0), size), b = w.load(memory, dtype, w.variable(0), size);
  w.store(result, body(w, dtype, a, b), w.variable(0));
  return w.finish();
}
Kernel pointwise(DType memory, int64_t size, const Body& body) {
  return pointwise(memory, size, body, memory);
}

Body binary(Op op) {
  return [op](Writer& w, DType dtype, int a, int b) { return w.op(op, dtype, {a, b}); };
}
Body comparison(Op op) {
  return [op](Writer& w, DType, int a, int b) { return w.op(op, DType::boolean, {a, b}); };
}
int relu(Writer& w, DType dtype, int x) { return w.op(Op::maximum, dtype, {x, w.number(dtype, 0)}); }

struct Fault {
  const char* name;
  unsigned dtypes;  // 1 wide, 2 half, 4 whole
  Body right, wrong;
  bool flags = false;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

const Fault faults[] = {
    {"abs_dropped", 3, [](Writer& w, DType t, int a, int) { return relu(w, t, w.op(Op::abs, t, {a})); },
     [](Writer& w, DType t, int a, int) { return relu(w, t, a); }},
    {"sub_for_add", 7, binary(Op::add), binary(Op::sub)},
    {"min_for_max", 7, binary(Op::maximum), binary(Op::minimum)},
    {"div_turned", 1, binary(Op::div),
     [](Writer& w, DType t, int a, int b) { return w.op(Op::div, t, {b, a}); }},
    {"le_for_lt", 7, comparison(Op::lt), comparison(Op::le), true},
    {"ne_for_eq", 7, comparison(Op::eq), comparison(Op::ne), true},
    {"constant", 1,
     [](Writer& w, DType t, int a, int) { return w.op(Op::mul, t, {a, w.number(t, 0.044715)}); },
     [](Writer& w, DType t, int a, int) { return w.op(Op::mul, t, {a, w.number(t, 0.044716)}); }},
    {"rounding_missing", 3,
     [](Writer& w, DType t, int a, int b) {
       const int product = w.op(Op::mul, t, {a, b});
       return t == DType::f32 ? w.op(Op::sub, t, {w.op(Op::round_bf16, t, {product}), b}) : product;
     },
     [](Writer& w, DType t, int a, int b) {
       const int product = w.op(Op::mul, t, {a, b});
       return t == DType::f32 ? w.op(Op::sub, t, {product, b}) : w.op(Op::add, t, {product, b});
     }},
    {"select_turned", 3,
     [](Writer& w, DType t, int a, int b) {
       return w.op(Op::select, t, {w.op(Op::is_nan, DType::boolean, {a}), b, a});
     },
     [](Writer&, DType, int a, int) { return a; }},
    {"tanh_for_erf", 1, [](Writer& w, DType t, int a, int) { return w.op(Op::erf, t, {a}); },
     [](Writer& w, DType t, int a, int) { return w.op(Op::tanh, t, {a}); }},
};

class PointwiseTrial : public testing::TestWithParam<std::tuple<Fault, int>> {};

TEST_P(PointwiseTrial, FaultIsFound) {
  const auto& [fault, size] = GetParam();
  for (const auto memory : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::u8}) {
    const unsigned kind = !ir::is_floating(memory) ? 4 : ir::size_of(memory) == 2 ? 2 : 1;
    if (!(fault.dtypes & kind)) continue;
    const auto result = fault.flags ? DType::boolean : memory;
    expect_found(pointwise(memory, size, fault.right, result), pointwise(memory, size, fault.wrong, result));
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, PointwiseTrial, testing::Combine(testing::ValuesIn(faults), sizes),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
                         });

// Wrong code that no wrong kernel gives: a function around the right one spoils what it has stored.
struct Spoiled {
  KernelFunction right = nullptr;
  int buffer = 0;
  int64_t element = 0;
  size_t bytes = 0;
};
thread_local Spoiled spoiled;  // NOLINT: a plain function has nowhere else to keep it

void run_and_spoil(void* const* buffers, int64_t begin, int64_t end, int32_t* error, void* partials,
                   int64_t stage) {
  spoiled.right(buffers, begin, end, error, partials, stage);
  auto* at =
      static_cast<char*>(buffers[spoiled.buffer]) + spoiled.element * static_cast<int64_t>(spoiled.bytes);
  at[spoiled.bytes - 1] = 0x55;
}

std::string fault_of_spoiled(const Kernel& kernel, int buffer, int64_t element) {
  const auto machine = compiled(kernel);
  const auto dtype = kernel.buffers[static_cast<size_t>(buffer)].dtype;
  spoiled = {machine.function, buffer, element, static_cast<size_t>(ir::size_of(dtype))};
  return try_kernel(kernel, machine.plan, run_and_spoil).fault;
}

class SpoiledElement : public testing::TestWithParam<int> {};

TEST_P(SpoiledElement, IsFound) {
  const int64_t size = GetParam();
  for (const auto memory :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i8, DType::boolean}) {
    const auto op = memory == DType::boolean ? Op::logical_xor : Op::maximum;
    const auto kernel = pointwise(memory, size, binary(op));
    for (const int64_t element : {int64_t{0}, size - 1})
      EXPECT_NE(fault_of_spoiled(kernel, 2, element), "") << element << " of\n" << to_string(kernel);
    // Beside the buffer, on either side.
    EXPECT_NE(fault_of_spoiled(kernel, 2, size), "");
    EXPECT_NE(fault_of_spoiled(kernel, 2, -1), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SpoiledElement, sizes);

/// out[i] = op over j of f(a[i][j]), and out2[i][j] = a[i][j] minus that
Kernel rows(DType memory, int64_t count, int64_t length, Op op, Op f, bool columns = false) {
  Writer w(columns ? std::vector<codegen::Dimension>{{length, true}, {count, false}}
                   : std::vector<codegen::Dimension>{{count, false}, {length, true}});
  const auto dtype = held(memory);
  const auto at = w.variable(0) * (columns ? count : length) + w.variable(1);
  const int x = w.load(memory, dtype, at, count * length);
  const int total = w.op(op, dtype, {w.op(f, dtype, {x})});
  w.store(dtype, total, w.variable(columns ? 1 : 0));
  w.store(memory, w.op(Op::sub, dtype, {x, total}), at);
  return w.finish();
}

class RowTrial : public testing::TestWithParam<int> {};

TEST_P(RowTrial, FaultsAreFound) {
  const int64_t length = GetParam();
  for (const bool columns : {false, true})
    for (const auto memory : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
      if (columns && length > 20000) continue;  // more pages than a trial may touch
      const auto right = rows(memory, 5, length, Op::reduce_sum, Op::abs, columns);
      expect_found(right, rows(memory, 5, length, Op::reduce_sum, Op::neg, columns));
      expect_right(rows(memory, 5, length, Op::reduce_min, Op::neg, columns));
      if (length > 1) expect_found(right, rows(memory, 5, length, Op::reduce_max, Op::abs, columns));
      EXPECT_NE(fault_of_spoiled(right, 2, 5 * length - 1), "") << to_string(right);
    }
}

INSTANTIATE_TEST_SUITE_P(Lengths, RowTrial, testing::Values(1, 3, 8, 9, 16, 64, 67, 1024, 20000, 100003));

// The row's last element is in the tail: without it the sum is another.
TEST(KernelTrial, FindsARowThatEndsTooEarly) {
  for (const int64_t length : {9, 67, 1025, 100003}) {
    const auto make = [&](bool all) {
      Writer w({{3, false}, {length, true}});
      const int inside = w.op(Op::lt, DType::boolean,
                              {w.iota(w.variable(1)), w.integer(DType::i64, all ? length : length - 1)});
      const int x = w.load(DType::f32, DType::f32, w.variable(0) * length + w.variable(1), 3 * length);
      const int zero = w.number(DType::f32, 0);
      w.store(DType::f32, w.op(Op::reduce_sum, DType::f32, {w.op(Op::select, DType::f32, {inside, x, zero})}),
              w.variable(0));
      return w.finish();
    };
    const auto trial = try_as(make(false), make(true));
    if (trial.left_out.empty()) EXPECT_NE(trial.fault, "") << length;
    // Thinned: elements that are all read alike say so too.
    EXPECT_EQ(trial.left_out.empty(), length < 20000);
  }
}

TEST(KernelTrial, FindsWrongIndicesAndGuards) {
  for (const int64_t size : {3, 8, 9, 64, 67, 1024}) {
    const auto shifted = [&](int64_t by) {
      Writer w({{size, false}});
      w.store(DType::f32, w.load(DType::f32, DType::f32, w.variable(0) + by, size + 1), w.variable(0));
      return w.finish();
    };
    expect_found(shifted(0), shifted(1));
    // A zero on either side, as padding has it.
    const auto padded = [&](int64_t end) {
      Writer w({{size, false}});
      const int at = w.iota(w.variable(0));
      const auto holds = [&](Op op, int64_t n) {
        return w.op(op, DType::boolean, {at, w.integer(DType::i64, n)});
      };
      const int guard = w.op(Op::logical_and, DType::boolean, {holds(Op::ge, 1), holds(Op::lt, end)});
      const int x = w.load(DType::f32, DType::f32, w.variable(0) - 1, size, guard);
      w.store(DType::f32, w.op(Op::select, DType::f32, {guard, x, w.number(DType::f32, 0)}), w.variable(0));
      return w.finish();
    };
    expect_found(padded(size - 1), padded(size));
  }
}

TEST(KernelTrial, FindsAWrongPlaceOfTheLargest) {
  for (const int64_t length : {5, 64, 67, 1000, 40000}) {
    const auto make = [&](Op op) {
      Writer w({{4, false}, {length, true}});
      const int x = w.load(DType::f32, DType::f32, w.variable(0) * length + w.variable(1), 4 * length);
      w.store(DType::i64, w.op(op, DType::i64, {x, w.iota(w.variable(1))}), w.variable(0));
      return w.finish();
    };
    expect_found(make(Op::reduce_argmax), make(Op::reduce_argmin));
  }
}

Kernel table_rows(int64_t count, int64_t width, int64_t table, bool wraps, int64_t plus) {
  Writer w({{count, false}, {width, false}});
  int index = w.load(DType::i64, DType::i64, w.variable(0), count);
  if (plus) index = w.op(Op::add, DType::i64, {index, w.integer(DType::i64, plus)});
  const int x = w.load(DType::f32, DType::f32, w.variable(1), table * width);
  Kernel kernel = w.finish();
  kernel.code[static_cast<size_t>(x)].indirect = {{index, width, table, wraps}};
  kernel.buffers.push_back({DType::f32, true});
  kernel.code.push_back({.op = Op::store,
                         .dtype = DType::f32,
                         .args = {x},
                         .buffer = 2,
                         .index = Index::variable(0, count) * width + Index::variable(1, width)});
  codegen::analyse(kernel);
  return kernel;
}

TEST(KernelTrial, TablesAreReadWhereDataSays) {
  expect_right(table_rows(6, 67, 11, false, 0));
  expect_right(table_rows(6, 67, 11, true, 0));
  expect_found(table_rows(6, 67, 11, true, 0), table_rows(6, 67, 11, false, 0));
}

// Nothing may crash, and nothing is said of such a kernel.
TEST(KernelTrial, IndicesOutsideTheirTableLeaveAKernelOut) {
  const auto kernel = table_rows(6, 67, 11, false, 100);
  const auto trial = try_as(kernel, kernel);
  EXPECT_EQ(trial.fault, "");
  EXPECT_NE(trial.left_out, "");
}

TEST(KernelTrial, SumsOverRowsAndColumns) {
  for (const auto& [count, length] : {std::pair<int64_t, int64_t>{3, 9}, {40, 67}, {1000, 300}}) {
    const auto make = [&, count = count, length = length](Op f) {
      Writer w({{count, false}, {length, true}});
      const auto at = w.variable(0) * length + w.variable(1);
      const int x = w.load(DType::f32, DType::f32, at, count * length);
      const int y = w.op(f, DType::f32, {x});
      const int row = w.op(Op::reduce_sum, DType::f32, {y});
      const int all = w.add({.op = Op::reduce_sum, .dtype = DType::f32, .args = {row}, .over_rows = true});
      const int column = w.add(
          {.op = Op::reduce_sum, .dtype = DType::f32, .args = {y}, .over_rows = true, .by_columns = true});
      w.store(DType::f32, all, 0);
      w.store(DType::f32, column, w.variable(1));
      return w.finish();
    };
    expect_found(make(Op::abs), make(Op::neg));
  }
}

// --- enclosures

Real of(Op op, DType dtype, double x) { return codegen::real_unary(op)(dtype, Real::exactly(x)); }
Real of(Op op, DType dtype, double x, double y) {
  return codegen::real_binary(op)(dtype, Real::exactly(x), Real::exactly(y));
}

TEST(Enclosure, WhatIeeeFixesIsAPoint) {
  EXPECT_EQ(of(Op::add, DType::f32, 1, 1e-9).high, 1.0);
  EXPECT_TRUE(of(Op::add, DType::f32, 0.1f, 0.2f).is_point());
  EXPECT_EQ(of(Op::div, DType::f32, 1, 3).low, 1.0f / 3.0f);
  EXPECT_TRUE(of(Op::sqrt, DType::f64, 2).is_point());
  EXPECT_EQ(of(Op::mul, DType::f32, 3e38f, 2).low, infinity);
  EXPECT_FALSE(of(Op::sub, DType::f32, infinity, infinity).has_numbers());
  EXPECT_TRUE(of(Op::sqrt, DType::f32, -1).nan);
}

TEST(Enclosure, FunctionsHaveAFewUnits) {
  for (const double x : {-30.0, -1.5, -1e-40, 0.0, 0.25, 3.0, 80.0}) {
    for (const Op op : {Op::exp, Op::tanh, Op::sin, Op::erf, Op::sigmoid, Op::log1p, Op::atan}) {
      const auto made = of(op, DType::f32, static_cast<float>(x));
      if (!made.has_numbers()) continue;
      EXPECT_LE(made.high - made.low, 1e-5 * std::max(std::abs(made.high), 1e-30)) << name_of(op) << " " << x;
    }
  }
  EXPECT_EQ(of(Op::exp, DType::f32, -infinity).high, 0);
  EXPECT_EQ(of(Op::exp, DType::f32, infinity).low, infinity);
}

TEST(Enclosure, DoubtStays) {
  const Real wide{-1, 2, false};
  EXPECT_EQ(codegen::real_comparison(Op::lt)(wide, Real::exactly(0)).high, 1);
  EXPECT_EQ(codegen::real_comparison(Op::lt)(wide, Real::exactly(0)).low, 0);
  EXPECT_EQ(codegen::real_unary(Op::abs)(DType::f32, wide).low, 0);
  EXPECT_TRUE(codegen::real_binary(Op::div)(DType::f32, Real::exactly(1), wide).holds(1e30));
  EXPECT_FALSE(codegen::to_whole(DType::i32, Real::exactly(1e20)).is_point());
  EXPECT_EQ(codegen::to_whole(DType::u8, Real::exactly(300)).low, 44);
}

TEST(Enclosure, SumsAllowAnyOrder) {
  codegen::RealTotal total(Op::reduce_sum, DType::f32, 1000);
  for (const double x : {1e8, 1.0, -1e8, 1.0}) total.add(Real::exactly(x));
  for (const double x : {0.0, 1.0, 2.0}) EXPECT_TRUE(total.result().holds(x));
  EXPECT_FALSE(total.result().holds(200));
  codegen::RealTotal over(Op::reduce_sum, DType::f32, 1000);
  for (const double x : {3e38, 3e38, -3e38, -3e38}) over.add(Real::exactly(x));
  EXPECT_TRUE(over.result().nan);
  codegen::BestPlace best(Op::reduce_argmax);
  for (const int64_t place : {0, 1, 2}) best.add(Real::exactly(place == 0 ? 1 : 5), Whole::exactly(place));
  EXPECT_EQ(best.result().low, 1);
  EXPECT_TRUE(best.result().is_point());
}

}  // namespace
}  // namespace graft::cpu
