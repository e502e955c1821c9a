// Elementary functions of generated code, against the C library in double: a stride through all floats and
// every float near the points where the formulas change. GRAFT_EXHAUSTIVE=1 takes all 2^32 of them (two
// minutes each).
#include "targets/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "generated_loop.h"

namespace graft::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kWrong = 1e9;

float float_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

/// How far `got` is from `exact`, in units of the last place of a float there. Infinity counts as the float
/// after the largest; a missing or wrong NaN, and a zero of the wrong sign, are as wrong as can be.
double ulps(float got, double exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : kWrong;
  if (got == 0 && static_cast<float>(exact) == 0 && std::signbit(got) != std::signbit(exact)) return kWrong;
  const double limit = 0x1p128;
  const double a = std::clamp<double>(got, -limit, limit), b = std::clamp(exact, -limit, limit);
  const int exponent = std::clamp(b == 0 ? -126 : std::ilogb(b), -126, 127);
  return std::abs(a - b) / std::ldexp(1.0, exponent - 23);
}

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

struct Case {
  const char* name;
  double (*exact)(double);
  double bound;                     // in ulp, of all floats
  std::vector<float> corners = {};  // where the formula changes, besides 0, 1, infinity...
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"acos", std::acos, 1.5, {0.5625f}},
    {"asin", std::asin, 1.5, {0.5625f}},
    {"atan", std::atan, 1.75},
    {"cos", std::cos, 1.75, {0x1p17f, 0.785398163f}},
    {"cosh", std::cosh, 1.5, {89.41599f}},
    {"erf", std::erf, 1.75, {0.8f, 3.92f}},
    {"erfc", std::erfc, 0.51, {10.05f}},
    {"exp", std::exp, 1.25, {88.72284f, -87.33655f, -103.97208f}},
    {"exp2", std::exp2, 1.25, {128, -126, -149, -150}},
    {"expm1", std::expm1, 1.75, {88.72284f, -17.32868f}},
    {"log", std::log, 1.0, {0.70710678f, 1.41421356f}},
    {"log10", std::log10, 1.25, {0.70710678f, 1.41421356f}},
    {"log1p", std::log1p, 1.75, {0.41421356f, -0.29289322f}},
    {"log2", std::log2, 1.25, {0.70710678f, 1.41421356f}},
    {"rsqrt", rsqrt, 1.5},
    {"sigmoid", sigmoid, 2.0, {-103.97208f, -88.72284f, 16.63553f}},
    {"sin", std::sin, 1.75, {0x1p17f, 0.785398163f}},
    {"sinh", std::sinh, 1.75, {89.41599f}},
    {"sqrt", std::sqrt, 0.5},
    {"tan", std::tan, 1.0, {0x1p17f, 0.785398163f}},
    {"tanh", std::tanh, 1.5, {0.55f, 9.01f}},
};

std::vector<float> samples(std::vector<float> corners) {
  std::vector<float> all;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 30011) all.push_back(float_of(bits));
  for (float x : {0.0f, 1.0f, FLT_MIN, 0x1p-25f, kInf}) corners.push_back(x);
  for (float corner : corners)
    for (int offset = -1000; offset <= 1000; ++offset)
      for (uint32_t sign : {0u, 0x80000000u})
        all.push_back(float_of((std::bit_cast<uint32_t>(corner) + static_cast<uint32_t>(offset)) ^ sign));
  // Evenly where most of them are not flat.
  for (int i = 0; i < 50000; ++i) all.push_back(-130.0f + static_cast<float>(i) * 0.0052f);
  for (int i = 0; i < 50000; ++i) all.push_back(-2.0f + static_cast<float>(i) * 0.00008f);
  return all;
}

struct Worst {
  double error = 0;
  float x = 0, got = 0;
  void see(const Case& c, const std::vector<float>& in, const std::vector<float>& out) {
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = c.exact(in[i]);
      const auto nearest = static_cast<float>(exact);
      if (std::memcmp(&nearest, &out[i], sizeof nearest) == 0) continue;  // half an ulp at most
      if (const double e = ulps(out[i], exact); e > error) *this = {e, in[i], out[i]};
    }
  }
};

class Unary : public testing::TestWithParam<Case> {};

TEST_P(Unary, IsAccurate) {
  const auto& c = GetParam();
  const GeneratedLoop loop(unary(find_unary(c.name)), 16);
  Worst worst;
  if (std::getenv("GRAFT_EXHAUSTIVE")) {
    std::vector<float> x(1 << 20);
    for (uint64_t start = 0; start < (uint64_t{1} << 32); start += x.size()) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = float_of(start + i);
      worst.see(c, x, loop.operator()<float>(x));
    }
  } else {
    const auto x = samples(c.corners);
    worst.see(c, x, loop.operator()<float>(x));
  }
  RecordProperty("ulp", std::to_string(worst.error));
  const bool fused = host().has("fma") || host().triple.starts_with("aarch64");
  EXPECT_LE(worst.error, fused ? c.bound : std::max(c.bound, 2.0))
      << c.name << "(" << worst.x << ") = " << worst.got << ", not " << c.exact(worst.x);
}

/// Lanes do not see each other: every width, and a scalar, gives the same bits.
TEST_P(Unary, IsTheSameAtEveryWidth) {
  const auto& c = GetParam();
  std::vector<float> x = {0,    -0.0f,  1,     -1,     0.3f, -0.7f, 2.5f, 100,
                          -100, 1e-40f, 1e30f, -1e30f, kInf, -kInf, kNan};
  for (int i = 0; i < 500; ++i) x.push_back(float_of(uint64_t{8590001} * static_cast<unsigned>(i)));
  const auto expected = GeneratedLoop(unary(find_unary(c.name)), 16).operator()<float>(x);
  for (unsigned width : {1, 3, 4, 8}) {
    const auto got = GeneratedLoop(unary(find_unary(c.name)), width).operator()<float>(x);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
          << c.name << "(" << x[i] << ") at width " << width << ": " << got[i] << ", not " << expected[i];
  }
}

TEST_P(Unary, OfDoubleIsTheLibrarys) {
  const auto& c = GetParam();
  const std::vector<double> x = {0.0, 0.25, 1.0, 0.75, 3.5};
  const auto y = GeneratedLoop(unary(find_unary(c.name)), 4, double_type).operator()<double>(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = c.exact(x[i]);
    if (std::isnan(exact))
      EXPECT_TRUE(std::isnan(y[i]));
    else
      EXPECT_DOUBLE_EQ(y[i], exact) << c.name << "(" << x[i] << ")";
  }
}

INSTANTIATE_TEST_SUITE_P(VectorMath, Unary, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(VectorMath, ExpOfWhatIsNeverPositive) {
  const Case exp{"exp", std::exp, 1.25, {-87.33655f, -103.97208f}};
  auto x = samples(exp.corners);
  std::erase_if(x, [](float v) { return v > 0; });
  x.push_back(kNan);
  for (const unsigned width : {1, 4, 16}) {
    Worst worst;
    worst.see(exp, x, GeneratedLoop(unary(emit_exp_down), width).operator()<float>(x));
    const bool fused = host().has("fma") || host().triple.starts_with("aarch64");
    EXPECT_LE(worst.error, fused ? exp.bound : 2.0) << "of " << worst.x << ": " << worst.got;
  }
}

TEST(VectorMath, UnknownNamesHaveNoEmitter) {
  EXPECT_EQ(find_unary("zeta"), nullptr);
  EXPECT_EQ(find_binary("zeta"), nullptr);
  EXPECT_NE(find_unary("lgamma"), nullptr);
}

/// Emission in the middle of a block: what follows the branch of sin must still come after it.
TEST(VectorMath, FarArgumentsMayBranchBeforeAnInstruction) {
  auto body = [](llvm::IRBuilderBase& b, llvm::ArrayRef<llvm::Value*> x) {
    auto* doubled = llvm::cast<llvm::Instruction>(b.CreateFAdd(x[0], x[0]));
    b.SetInsertPoint(doubled);
    auto* y = emit_sin(b, x[0]);
    b.SetInsertPoint(doubled->getParent());
    return b.CreateFAdd(y, doubled);
  };
  const std::vector<float> x = {0.5f, 1e6f, -3e8f, 2.0f, 1.0f};
  const auto y = GeneratedLoop(body, 4).operator()<float>(x);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(y[i], std::sin(double{x[i]}) + 2.0 * x[i], std::abs(x[i]) * 1e-6);
}

GeneratedLoop pow_loop(unsigned width) {
  return GeneratedLoop(
      [](llvm::IRBuilderBase& b, llvm::ArrayRef<llvm::Value*> x) { return emit_pow(b, x[0], x[1]); }, width);
}

TEST(VectorMath, PowIsAccurate) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> log_x(-149, 128), log_y(-150, 150), around(-1e-3f, 1e-3f);
  std::vector<float> x, y;
  auto add = [&](float base, float exponent) { x.push_back(base), y.push_back(exponent); };
  for (int i = 0; i < 200000; ++i) {
    const float base = std::exp2(log_x(random));
    add(base, log_y(random) / std::log2(base));     // results over the whole range
    add(1 + around(random), 1e5f * log_y(random));  // near 1 with large exponents
    add(float_of(random()), float_of(random()));
    add(-base, static_cast<float>(static_cast<int>(random() % 41) - 20));
  }
  const auto z = pow_loop(16).operator()<float>(x, y);
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double e = ulps(z[i], std::pow(double{x[i]}, double{y[i]})); e > worst) worst = e, where = i;
  RecordProperty("ulp", std::to_string(worst));
  EXPECT_LE(worst, 0.75) << "pow(" << x[where] << ", " << y[where] << ") = " << z[where];
}

TEST(VectorMath, PowHasTheLibrarysSpecialCases) {
  const std::vector<float> values = {
      0,     -0.0f,  1,       -1,    0.5f,   -0.5f,       2,           -2,          3,    -3,    1.5f,
      -1.5f, 1e-42f, -1e-42f, 1e38f, -1e38f, 16777216.0f, 16777215.0f, -8388609.0f, kInf, -kInf, kNan};
  std::vector<float> x, y;
  for (float a : values)
    for (float b : values) x.push_back(a), y.push_back(b);
  for (unsigned width : {1, 3, 16}) {
    const auto z = pow_loop(width).operator()<float>(x, y);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(ulps(z[i], std::pow(double{x[i]}, double{y[i]})), 0.75)
          << "pow(" << x[i] << ", " << y[i] << ") = " << z[i];
  }
}

TEST(VectorMath, BinaryFunctionsOfTheLibrary) {
  const auto atan2 =
      GeneratedLoop([](llvm::IRBuilderBase& b,
                       llvm::ArrayRef<llvm::Value*> x) { return find_binary("atan2")(b, x[0], x[1]); },
                    4);
  const auto z = atan2.operator()<float>(std::vector<float>{1, -2, 0}, std::vector<float>{-1, 3, -1});
  EXPECT_FLOAT_EQ(z[0], std::atan2(1.0f, -1.0f));
  EXPECT_FLOAT_EQ(z[1], std::atan2(-2.0f, 3.0f));
  EXPECT_FLOAT_EQ(z[2], std::atan2(0.0f, -1.0f));
}

}  // namespace
}  // namespace graft::cpu
