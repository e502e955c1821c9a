// Elementary functions of generated code, against the C library in more precision (that of float in double,
// of double in long double): a stride through all numbers and every one near the points where the formulas
// change. GRAFT_EXHAUSTIVE=1 takes all 2^32 floats (two minutes each).
#include "targets/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "generated_loop.h"

namespace graft::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kWrong = 1e9;

float float_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

/// What results of T are held against.
template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

/// How far `got` is from `exact`, in units of the last place of a T there. Infinity counts as the number
/// after the largest; a missing or wrong NaN, and a zero of the wrong sign, are as wrong as can be.
template <class T>
double ulps(T got, Wider<T> exact) {
  using Wide = Wider<T>;
  using Limits = std::numeric_limits<T>;
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : kWrong;
  if (got == 0 && static_cast<T>(exact) == 0 && std::signbit(got) != std::signbit(exact)) return kWrong;
  const Wide limit = std::ldexp(Wide{1}, Limits::max_exponent);
  const Wide a = std::clamp<Wide>(got, -limit, limit), b = std::clamp(exact, -limit, limit);
  constexpr int smallest = Limits::min_exponent - 1, largest = Limits::max_exponent - 1;
  const int exponent = b == 0 ? smallest : std::clamp(std::ilogb(b), smallest, largest);
  return static_cast<double>(std::abs(a - b) / std::ldexp(Wide{1}, exponent - Limits::digits + 1));
}

template <class Wide>
Wide sigmoid(Wide x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
template <class Wide>
Wide rsqrt(Wide x) {
  return 1 / std::sqrt(x);
}

struct Case {
  const char* name;
  double (*exact)(double);
  double bound;                     // in ulp, of all floats
  std::vector<float> corners = {};  // where the formula changes, besides 0, 1, infinity...
  long double (*exact_of_double)(long double) = nullptr;
  double bound_of_double = 0;
  std::vector<double> corners_of_double = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"acos", std::acos, 1.5, {0.5625f}, std::acos, 1.5, {0.5625}},
    {"asin", std::asin, 1.5, {0.5625f}, std::asin, 1.5, {0.5625}},
    {"atan", std::atan, 1.75, {}, std::atan, 1.75, {}},
    {"cos", std::cos, 1.75, {0x1p17f, 0.785398163f}, std::cos, 1.75, {0x1p30, 0.78539816339744831}},
    {"cosh", std::cosh, 1.5, {89.41599f}, std::cosh, 1.75, {710.4758600739439}},
    {"erf", std::erf, 1.75, {0.8f, 3.92f}, std::erf, 1.75, {1.0, 5.92}},
    {"erfc", std::erfc, 2.0, {0.5f, 3.0f, 9.19f, 10.05f}, std::erfc, 1.75, {0.5, 3.5, 26.54, 27.22}},
    {"exp",
     std::exp,
     1.25,
     {88.72284f, -87.33655f, -103.97208f},
     std::exp,
     1.25,
     {709.782712893384, -708.39641853226408, -745.13321910194122}},
    {"exp2", std::exp2, 1.25, {128, -126, -149, -150}, std::exp2, 1.25, {1024, -1022, -1074, -1075}},
    {"expm1",
     std::expm1,
     1.75,
     {88.72284f, -17.32868f},
     std::expm1,
     2.0,
     {709.782712893384, -37.429947750237041}},
    {"log",
     std::log,
     1.0,
     {0.70710678f, 1.41421356f},
     std::log,
     1.0,
     {0.70710678118654757, 1.4142135623730951}},
    {"log10",
     std::log10,
     1.25,
     {0.70710678f, 1.41421356f},
     std::log10,
     1.25,
     {0.70710678118654757, 1.4142135623730951}},
    {"log1p",
     std::log1p,
     1.75,
     {0.41421356f, -0.29289322f},
     std::log1p,
     1.75,
     {0.41421356237309503, -0.29289321881345243}},
    {"log2",
     std::log2,
     1.25,
     {0.70710678f, 1.41421356f},
     std::log2,
     1.25,
     {0.70710678118654757, 1.4142135623730951}},
    {"rsqrt", rsqrt, 1.5, {}, rsqrt, 1.5, {}},
    {"sigmoid",
     sigmoid,
     2.0,
     {-103.97208f, -88.72284f, 16.63553f},
     sigmoid,
     2.0,
     {-745.13321910194122, -708.39641853226408, 36.7}},
    {"sin", std::sin, 1.75, {0x1p17f, 0.785398163f}, std::sin, 1.75, {0x1p30, 0.78539816339744831}},
    {"sinh", std::sinh, 1.75, {89.41599f}, std::sinh, 1.75, {710.4758600739439}},
    {"sqrt", std::sqrt, 0.5, {}, std::sqrt, 0.5, {}},
    {"tan", std::tan, 1.5, {0x1p17f, 0.785398163f}, std::tan, 2.0, {0x1p20, 0.78539816339744831}},
    {"tanh", std::tanh, 1.5, {0.55f, 9.01f}, std::tanh, 1.5, {0.55, 19.06}},
};

std::vector<float> samples(std::vector<float> corners) {
  std::vector<float> all;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 30011) all.push_back(float_of(bits));
  for (float x : {0.0f, 1.0f, FLT_MIN, 0x1p-25f, kInf}) corners.push_back(x);
  for (float corner : corners)
    for (int offset = -1000; offset <= 1000; ++offset)
      for (uint32_t sign : {0u, 0x80000000u})
        all.push_back(float_of((std::bit_cast<uint32_t>(corner) + static_cast<uint32_t>(offset)) ^ sign));
  // Poles and zeros of trigonometric functions, where almost nothing is left of the argument.
  for (int n = 1; n < 84000; ++n) all.push_back(static_cast<float>(n * (std::numbers::pi / 2)));
  // Evenly where most of them are not flat.
  for (int i = 0; i < 50000; ++i) all.push_back(-130.0f + static_cast<float>(i) * 0.0052f);
  for (int i = 0; i < 50000; ++i) all.push_back(-2.0f + static_cast<float>(i) * 0.00008f);
  return all;
}

std::vector<double> samples_of_double(std::vector<double> corners) {
  std::vector<double> all;
  constexpr uint64_t stride = 0x0000'3c1f'a5b7'3d91;  // 280,000 of them
  for (uint64_t i = 0; i < UINT64_MAX / stride; ++i) all.push_back(std::bit_cast<double>(i * stride));
  for (double x : {0.0, 1.0, DBL_MIN, 0x1p-54, std::numeric_limits<double>::infinity()}) corners.push_back(x);
  for (double corner : corners)
    for (int64_t offset = -1000; offset <= 1000; ++offset)
      for (uint64_t sign : {uint64_t{0}, uint64_t{1} << 63})
        all.push_back(
            std::bit_cast<double>((std::bit_cast<uint64_t>(corner) + static_cast<uint64_t>(offset)) ^ sign));
  for (int n = 1; n < 1'400'000; n += 17)
    all.push_back(static_cast<double>(n * (std::numbers::pi_v<long double> / 2)));
  std::mt19937_64 random(1);
  for (double reach : {1.0, 8.0, 50.0, 760.0, 1e6}) {
    std::uniform_real_distribution<double> around(-reach, reach);
    for (int i = 0; i < 50000; ++i) all.push_back(around(random));
  }
  return all;
}

template <class T>
struct Worst {
  double error = 0;
  T x = 0, got = 0;
  template <class Exact>
  void see(Exact function, const std::vector<T>& in, const std::vector<T>& out) {
    for (size_t i = 0; i < in.size(); ++i) {
      const auto exact = function(in[i]);
      const auto nearest = static_cast<T>(exact);
      if (std::memcmp(&nearest, &out[i], sizeof nearest) == 0) continue;  // half an ulp at most
      if (const double e = ulps<T>(out[i], exact); e > error) *this = {e, in[i], out[i]};
    }
  }
};

class Unary : public testing::TestWithParam<Case> {};

TEST_P(Unary, IsAccurate) {
  const auto& c = GetParam();
  const GeneratedLoop loop(unary(find_unary(c.name)), 16);
  Worst<float> worst;
  if (std::getenv("GRAFT_EXHAUSTIVE")) {
    std::vector<float> x(1 << 20);
    for (uint64_t start = 0; start < (uint64_t{1} << 32); start += x.size()) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = float_of(start + i);
      worst.see(c.exact, x, loop.operator()<float>(x));
    }
  } else {
    const auto x = samples(c.corners);
    worst.see(c.exact, x, loop.operator()<float>(x));
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

TEST_P(Unary, OfDoubleIsAccurate) {
  const auto& c = GetParam();
  const auto x = samples_of_double(c.corners_of_double);
  Worst<double> worst;
  worst.see(c.exact_of_double, x,
            GeneratedLoop(unary(find_unary(c.name)), 8, double_type).operator()<double>(x));
  RecordProperty("ulp", std::to_string(worst.error));
  // Without fma it is the C library's, which has bounds of its own.
  const bool fused = host().has("fma") || host().triple.starts_with("aarch64");
  EXPECT_LE(worst.error, fused ? c.bound_of_double : std::max(c.bound_of_double, 3.0))
      << c.name << "(" << std::hexfloat << worst.x << ") = " << worst.got << ", not "
      << c.exact_of_double(worst.x);
}

TEST_P(Unary, OfDoubleIsTheSameAtEveryWidth) {
  const auto& c = GetParam();
  std::vector<double> x = {0,   -0.0,   1,     -1,     0.3,      -0.7,      2.5,          100,    -100,
                           720, 1e-310, 1e300, -1e300, INFINITY, -INFINITY, std::nan(""), -745.1, 0x1.8p31};
  std::mt19937_64 random(2);
  for (int i = 0; i < 500; ++i) x.push_back(std::bit_cast<double>(random()));
  const auto expected = GeneratedLoop(unary(find_unary(c.name)), 8, double_type).operator()<double>(x);
  for (unsigned width : {1, 3, 4, 16}) {
    const auto got = GeneratedLoop(unary(find_unary(c.name)), width, double_type).operator()<double>(x);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
          << c.name << "(" << x[i] << ") at width " << width << ": " << got[i] << ", not " << expected[i];
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
    Worst<float> worst;
    worst.see(exp.exact, x, GeneratedLoop(unary(emit_exp_down), width).operator()<float>(x));
    const bool fused = host().has("fma") || host().triple.starts_with("aarch64");
    EXPECT_LE(worst.error, fused ? exp.bound : 2.0) << "of " << worst.x << ": " << worst.got;
  }
}

TEST(VectorMath, ExpOfDoublesThatAreNeverPositive) {
  auto x = samples_of_double({-708.39641853226408, -745.13321910194122});
  std::erase_if(x, [](double v) { return v > 0; });
  x.push_back(std::nan(""));
  for (const unsigned width : {1, 4, 8}) {
    Worst<double> worst;
    worst.see([](long double v) { return std::exp(v); }, x,
              GeneratedLoop(unary(emit_exp_down), width, double_type).operator()<double>(x));
    EXPECT_LE(worst.error, 1.25) << "of " << worst.x << ": " << worst.got;
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

GeneratedLoop binary_loop(const char* name, unsigned width, TypeOf type) {
  return GeneratedLoop([name](llvm::IRBuilderBase& b,
                              llvm::ArrayRef<llvm::Value*> x) { return find_binary(name)(b, x[0], x[1]); },
                       width, type);
}

template <class T>
struct Format;
template <>
struct Format<float> {
  static constexpr double bound = 0.75;
  static constexpr TypeOf type = float_type;
  static constexpr unsigned width = 16;
  static constexpr float small = 1e-42f, large = 1e38f, gaps = 16777216.0f, lowest = -149, highest = 128;
  static float any(uint64_t bits) { return float_of(bits); }
};
template <>
struct Format<double> {
  static constexpr double bound = 1.25;
  static constexpr TypeOf type = double_type;
  static constexpr unsigned width = 8;
  static constexpr double small = 1e-320, large = 1e308, gaps = 0x1p53, lowest = -1074, highest = 1024;
  static double any(uint64_t bits) { return std::bit_cast<double>(bits); }
};

template <class T>
class Binary : public testing::Test {};
using Formats = testing::Types<float, double>;
TYPED_TEST_SUITE(Binary, Formats);

/// Numbers that formulas treat in ways of their own, with fractions, odd and even ones.
template <class T>
std::vector<T> special_numbers() {
  using F = Format<T>;
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  return {0,       T(-0.0),     1,      -1,      T(0.5),   T(-0.5),           2,        -2,
          3,       -3,          T(1.5), T(-1.5), F::small, -F::small,         F::large, -F::large,
          F::gaps, F::gaps - 1, inf,    -inf,    nan,      -(F::gaps / 2 + 1)};
}

TYPED_TEST(Binary, PowIsAccurate) {
  using T = TypeParam;
  using F = Format<T>;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<T> log_x(F::lowest, F::highest), log_y(F::lowest - 1, F::highest * T(1.2)),
      around(T(-1e-3), T(1e-3));
  std::vector<T> x, y;
  auto add = [&](T base, T exponent) { x.push_back(base), y.push_back(exponent); };
  for (int i = 0; i < 200000; ++i) {
    const T base = std::exp2(log_x(random));
    add(base, log_y(random) / std::log2(base));     // results over the whole range
    add(1 + around(random), 1000 * log_y(random));  // near 1 with large exponents
    add(F::any(random()), F::any(random()));
    add(-base, static_cast<T>(static_cast<int>(random() % 41) - 20));
  }
  const auto z = binary_loop("pow", F::width, F::type).template operator()<T>(x, y);
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double e = ulps<T>(z[i], std::pow(Wider<T>{x[i]}, Wider<T>{y[i]})); e > worst)
      worst = e, where = i;
  this->RecordProperty("ulp", std::to_string(worst));
  EXPECT_LE(worst, F::bound) << "pow(" << x[where] << ", " << y[where] << ") = " << z[where];
}

TYPED_TEST(Binary, PowHasTheLibrarysSpecialCases) {
  using T = TypeParam;
  using F = Format<T>;
  std::vector<T> x, y;
  for (T a : special_numbers<T>())
    for (T b : special_numbers<T>()) x.push_back(a), y.push_back(b);
  for (unsigned width : {1u, 3u, F::width}) {
    const auto z = binary_loop("pow", width, F::type).template operator()<T>(x, y);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(ulps<T>(z[i], std::pow(Wider<T>{x[i]}, Wider<T>{y[i]})), F::bound)
          << "pow(" << x[i] << ", " << y[i] << ") = " << z[i];
  }
}

TYPED_TEST(Binary, FmodIsExact) {
  using T = TypeParam;
  using F = Format<T>;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<T> even(-100, 100);
  std::vector<T> x, y;
  auto add = [&](T dividend, T divisor) { x.push_back(dividend), y.push_back(divisor); };
  for (T a : special_numbers<T>())
    for (T b : special_numbers<T>()) add(a, b);
  for (int i = 0; i < 20000; ++i) {
    const T a = even(random), b = even(random);
    add(a, b);
    add(F::any(random()), F::any(random()));
    // Next to a multiple, where the quotient rounds to the whole number above.
    const T multiple = b * static_cast<T>(random() % 100000);
    add(multiple, b);
    add(std::nextafter(multiple, T(0)), b);
    add(std::nextafter(multiple, multiple * 2), b);
    add(b * F::gaps * static_cast<T>(random() % 7), a);  // quotients that have gaps
  }
  for (unsigned width : {1u, 3u, F::width}) {
    const auto z = binary_loop("fmod", width, F::type).template operator()<T>(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
      const T exact = std::fmod(x[i], y[i]);
      EXPECT_TRUE(std::isnan(exact) ? std::isnan(z[i])
                                    : z[i] == exact && std::signbit(z[i]) == std::signbit(exact))
          << "fmod(" << x[i] << ", " << y[i] << ") = " << z[i] << ", not " << exact;
    }
  }
}

TEST(VectorMath, BinaryFunctionsOfTheLibrary) {
  const auto atan2 = binary_loop("atan2", 4, float_type);
  const auto z = atan2.operator()<float>(std::vector<float>{1, -2, 0}, std::vector<float>{-1, 3, -1});
  EXPECT_FLOAT_EQ(z[0], std::atan2(1.0f, -1.0f));
  EXPECT_FLOAT_EQ(z[1], std::atan2(-2.0f, 3.0f));
  EXPECT_FLOAT_EQ(z[2], std::atan2(0.0f, -1.0f));
}

}  // namespace
}  // namespace graft::cpu
