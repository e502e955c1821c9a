// Random expressions of pointwise operators over special values (NaN, infinities, both zeros, denormals, the
// largest, the ends of whole numbers), compiled and over ATen, element by element and to the bit: what is
// rounded once is rounded alike. Sizes from 1 to 70, so that vectors of every width and the elements that are
// left over take part. A program that fails is cut down to one result and printed.
//
// GRAFT_FUZZ_COUNT programs for each dtype (default 30), from GRAFT_FUZZ_SEED on (default 1).
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <set>
#include <sstream>

#include "compiled_check.h"

namespace graft {
namespace {

using at::Tensor;

enum Family : unsigned { wide = 1, half = 2, whole = 4, real = wide | half, any = real | whole };

/// Of a dtype T. $n is a value of T, $f flags, $i one of the inputs, # a number.
struct Rule {
  const char* text;
  enum class Gives : uint8_t { number, flag } gives;
  unsigned families;
};
constexpr auto number = Rule::Gives::number, flag = Rule::Gives::flag;

// Half types are rounded less often than by ATen, so they have only what rounds nothing. What divides has an
// input below it: of two zeros the larger is one here and the other there.
constexpr Rule rules[] = {
    {"aten::neg(self=$n)", number, any},
    {"aten::abs(self=$n)", number, any},
    {"aten::abs(self=$n)", number, any},
    {"aten::sign(self=$n)", number, any},
    {"aten::relu(self=$n)", number, any},
    {"aten::clone(self=$n)", number, any},
    {"aten::floor(self=$n)", number, real},
    {"aten::ceil(self=$n)", number, real},
    {"aten::round(self=$n)", number, real},
    {"aten::trunc(self=$n)", number, real},
    {"aten::maximum(self=$n, other=$n)", number, any},
    {"aten::minimum(self=$n, other=$n)", number, any},
    {"aten::clamp(self=$n, min=#, max=#)", number, any},
    {"aten::clamp_min(self=$n, min=#)", number, any},
    {"aten::clamp_min(self=$n, min=0)", number, any},
    {"aten::clamp_max(self=$n, max=#)", number, any},
    {"aten::hardtanh(self=$n, min_val=-1, max_val=1)", number, real},
    {"aten::threshold(self=$n, threshold=#, value=#)", number, real},
    {"aten::where.self(condition=$f, self=$n, other=$n)", number, any},
    {"aten::where.self(condition=$f, self=$n, other=$n)", number, any},
    {"aten::masked_fill.Scalar(self=$n, mask=$f, value=#)", number, any},
    {"aten::add.Tensor(self=$n, other=$n)", number, wide | whole},
    {"aten::sub.Tensor(self=$n, other=$n)", number, wide | whole},
    {"aten::mul.Tensor(self=$n, other=$n)", number, wide | whole},
    {"aten::div.Tensor(self=$n, other=$i)", number, wide},
    {"aten::reciprocal(self=$i)", number, wide},
    {"aten::square(self=$n)", number, wide},
    {"aten::bitwise_and.Tensor(self=$n, other=$n)", number, whole},
    {"aten::bitwise_or.Tensor(self=$n, other=$n)", number, whole},
    {"aten::bitwise_xor.Tensor(self=$n, other=$n)", number, whole},
    {"aten::bitwise_not(self=$n)", number, whole},
    {"aten::eq.Tensor(self=$n, other=$n)", flag, any},
    {"aten::ne.Tensor(self=$n, other=$n)", flag, any},
    {"aten::lt.Tensor(self=$n, other=$n)", flag, any},
    {"aten::le.Tensor(self=$n, other=$n)", flag, any},
    {"aten::gt.Tensor(self=$n, other=$n)", flag, any},
    {"aten::ge.Tensor(self=$n, other=$n)", flag, any},
    {"aten::eq.Scalar(self=$n, other=#)", flag, any},
    {"aten::ne.Scalar(self=$n, other=#)", flag, any},
    {"aten::lt.Scalar(self=$n, other=#)", flag, any},
    {"aten::le.Scalar(self=$n, other=#)", flag, any},
    {"aten::gt.Scalar(self=$n, other=#)", flag, any},
    {"aten::gt.Scalar(self=$n, other=0)", flag, any},
    {"aten::ge.Scalar(self=$n, other=#)", flag, any},
    {"aten::isnan(self=$n)", flag, real},
    {"aten::isnan(self=$n)", flag, real},
    {"aten::isinf(self=$n)", flag, real},
    {"aten::logical_and(self=$f, other=$f)", flag, any},
    {"aten::logical_or(self=$f, other=$f)", flag, any},
    {"aten::logical_xor(self=$f, other=$n)", flag, any},
    {"aten::logical_not(self=$n)", flag, any},
    {"aten::logical_not(self=$f)", flag, any},
};

/// An expression by its lines; a value's number is its line's after those of the inputs.
struct Program {
  static constexpr int inputs = 3;
  ir::DType dtype;
  int64_t size;
  std::vector<std::string> lines;
  std::vector<Rule::Gives> gives;
  std::vector<int> results;

  std::string type(Rule::Gives kind) const {
    const auto name = kind == flag ? "bool" : std::string(ir::name_of(dtype));
    return name + "[" + std::to_string(size) + "]";
  }

  /// Without lines that no result needs.
  std::string text() const {
    std::set<int> needed(results.begin(), results.end());
    for (int i = static_cast<int>(lines.size()) - 1; i >= 0; --i) {
      if (!needed.contains(inputs + i)) continue;
      const auto& line = lines[static_cast<size_t>(i)];
      for (size_t at = line.find('%'); at != std::string::npos; at = line.find('%', at + 1))
        needed.insert(std::atoi(line.c_str() + at + 1));
    }
    std::ostringstream made;
    made << "graph(";
    for (int i = 0; i < inputs; ++i) made << (i ? ", %" : "%") << i << " \"x" << i << "\": " << type(number);
    made << ") {\n";
    for (size_t i = 0; i < lines.size(); ++i)
      if (const int id = inputs + static_cast<int>(i); needed.contains(id))
        made << "  %" << id << ": " << type(gives[i]) << " = " << lines[i] << "\n";
    made << "  return (";
    for (size_t i = 0; i < results.size(); ++i) made << (i ? ", %" : "%") << results[i];
    made << ")\n}\n";
    return made.str();
  }
};

unsigned family_of(ir::DType dtype) {
  return !ir::is_floating(dtype) ? whole : ir::size_of(dtype) == 2 ? half : wide;
}

class Author {
 public:
  Author(uint64_t seed, ir::DType dtype)
      : engine_(seed), family_(family_of(dtype)), program_{.dtype = dtype} {
    program_.size = below(3) ? 1 + static_cast<int64_t>(below(70)) : 1 + static_cast<int64_t>(below(17));
  }

  Program write() {
    for (int i = 0; i < Program::inputs; ++i) numbers_.push_back(i);
    const size_t lines = 4 + below(20);
    while (program_.lines.size() < lines) add(rules[below(std::size(rules))]);
    for (size_t i = 0; i < 4; ++i)
      program_.results.push_back(Program::inputs + static_cast<int>(lines - 1 - i));
    return program_;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  /// New values more often than old ones: deep expressions.
  int one_of(const std::vector<int>& values) {
    const size_t n = values.size();
    return values[below(2) ? n - 1 - below(std::min<size_t>(n, 3)) : below(n)];
  }

  void add(const Rule& rule) {
    if (!(rule.families & family_)) return;
    std::string line;
    for (const char* at = rule.text; *at; ++at) {
      if (*at == '#') {
        constexpr const char* reals[] = {"0", "1", "-1", "0.5", "-2.5", "0.0", "-0.0", "inf", "-inf"};
        constexpr const char* integers[] = {"0", "1", "-1", "2", "-3", "7"};
        const bool is_real = family_ != whole;
        const bool is_unsigned = program_.dtype == ir::DType::u8;
        line += is_real ? reals[below(std::size(reals))] : integers[is_unsigned ? below(2) : below(6)];
      } else if (*at == '$') {
        const char kind = *++at;
        if (kind == 'f' && flags_.empty()) return;
        const int value = kind == 'f'   ? one_of(flags_)
                          : kind == 'n' ? one_of(numbers_)
                                        : static_cast<int>(below(Program::inputs));
        line += "%" + std::to_string(value);
      } else {
        line += *at;
      }
    }
    const int id = Program::inputs + static_cast<int>(program_.lines.size());
    (rule.gives == flag ? flags_ : numbers_).push_back(id);
    program_.lines.push_back(line);
    program_.gives.push_back(rule.gives);
  }

  std::mt19937_64 engine_;
  unsigned family_;
  Program program_;
  std::vector<int> numbers_, flags_;
};

/// Every place one of the values that are special.
Tensor special(ir::DType dtype, int64_t size) {
  const auto type = to_torch(dtype);
  std::vector<double> values;
  if (ir::is_floating(dtype)) {
    values = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, -7, 1e-3, 100.25, -100.25};
    if (dtype == ir::DType::f16)
      values.insert(values.end(), {6e-8, -6e-8, 65504, -65504});
    else
      values.insert(values.end(), {1e-40, -1e-40, 3e38, -3e38});
    if (dtype == ir::DType::f64) values.insert(values.end(), {5e-324, -1e-310, 1.7e308, -1.7e308});
    return at::tensor(values, at::kDouble).to(type).index_select(0, at::randint(0, values.size(), {size}));
  }
  std::vector<int64_t> integers = {0, 1, 2, 3, 7, 100, 127};
  const int64_t bits = 8 * ir::size_of(dtype);
  const auto largest =
      static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >> (dtype == ir::DType::u8 ? 56 : 65 - bits));
  integers.insert(integers.end(), {largest, largest - 1});
  if (dtype != ir::DType::u8) integers.insert(integers.end(), {-1, -2, -7, -100, -largest, -largest - 1});
  return at::tensor(integers, at::kLong)
      .to(type)
      .index_select(0, at::randint(0, static_cast<int64_t>(integers.size()), {size}));
}

/// Where the two are not one value: all NaN are one, and both zeros.
Tensor other(const Tensor& got, const Tensor& want) {
  auto same = got.eq(want);
  if (want.is_floating_point()) same = same.logical_or(got.isnan().logical_and(want.isnan()));
  return same.logical_not();
}

struct Failure {
  int result = -1;
  std::string what;
};

Failure run(const Program& program, uint64_t seed) {
  const auto graph = ir::parse(program.text());
  const auto reference = ref::compile(graph, {});
  const auto compiled = build(ir::clone(graph), {}, {.cache = false});
  at::manual_seed(seed);
  for (int call = 0; call < 3; ++call) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < Program::inputs; ++i) inputs.push_back(special(program.dtype, program.size));
    const auto want = reference->run(inputs), got = compiled->run(inputs);
    for (size_t i = 0; i < want.size(); ++i) {
      const auto bad = other(got[i], want[i]).nonzero();
      if (bad.numel() == 0) continue;
      const auto at = bad[0].item<int64_t>();
      std::ostringstream text;
      text.precision(17);
      text << bad.size(0) << " of " << program.size << " values differ, the first at " << at << ": got "
           << got[i][at].to(at::kDouble).item<double>() << ", want "
           << want[i][at].to(at::kDouble).item<double>() << ", inputs";
      for (const auto& input : inputs) text << " " << input[at].to(at::kDouble).item<double>();
      return {static_cast<int>(i), text.str()};
    }
  }
  return {};
}

int64_t setting(const char* name, int64_t standard) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : standard;
}

class PointwiseFuzz : public testing::TestWithParam<ir::DType> {};

TEST_P(PointwiseFuzz, SpecialValuesAreAsInATen) {
  const auto first = static_cast<uint64_t>(setting("GRAFT_FUZZ_SEED", 1));
  const auto count = static_cast<uint64_t>(setting("GRAFT_FUZZ_COUNT", 30));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    auto program = Author(seed, GetParam()).write();
    const auto failure = run(program, seed);
    if (failure.what.empty()) continue;
    auto alone = program;
    alone.results = {program.results[static_cast<size_t>(failure.result)]};
    const auto again = run(alone, seed);
    ADD_FAILURE() << "seed " << seed << ": " << (again.what.empty() ? failure.what : again.what) << "\n"
                  << (again.what.empty() ? program : alone).text();
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, PointwiseFuzz,
                         testing::Values(ir::DType::f32, ir::DType::f64, ir::DType::bf16, ir::DType::f16,
                                         ir::DType::i64, ir::DType::i32, ir::DType::i16, ir::DType::i8,
                                         ir::DType::u8),
                         [](const auto& info) { return std::string(ir::name_of(info.param)); });

// Wrong in tails and in vectors under 16 lanes, where LLVM took |x| > 0 for x > 0.
TEST(PointwiseEdges, ReluOfAbsIsNotRelu) {
  for (const char* dtype : {"f32", "f64", "bf16", "f16"})
    for (const int size : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 67})
      for (const char* op : {"aten::relu(self=%1)", "aten::clamp_min(self=%1, min=0)",
                             "aten::clamp_min(self=%1, min=0.0)", "aten::maximum(self=%1, other=%2)"}) {
        const auto type = std::string(dtype) + "[" + std::to_string(size) + "]";
        const auto text = "graph(%0 \"x\": " + type + ") {\n  %1: " + type +
                          " = aten::abs(self=%0)\n  %2: " + type +
                          " = aten::zeros_like(self=%0)\n  %3: " + type + " = " + op + "\n  return (%3)\n}\n";
        const auto compiled = build(ir::parse(text), {}, {.cache = false});
        const auto x = at::full({size}, -2.0, to_torch(*ir::dtype_named(dtype)));
        EXPECT_TRUE(compiled->run({x})[0].eq(2).all().item<bool>()) << text;
      }
}

}  // namespace
}  // namespace graft
