// bfloat16, half and integers of generated code: all 2^16 values one way, and back from every value, its
// neighbours' midpoints and what lies beside them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "generated_loop.h"
#include "targets/cpu/jit.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A binary format of 16 bits, by arithmetic: sign, exponent of `exponent_bits`, fraction.
struct Format {
  int exponent_bits;
  int fraction_bits() const { return 15 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  double value(uint16_t bits) const {
    const int exponent = (bits & 0x7fff) >> fraction_bits(), fraction = bits & ((1 << fraction_bits()) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
      return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
    const double significand =
        exponent ? 1 + std::ldexp(fraction, -fraction_bits()) : std::ldexp(fraction, -fraction_bits());
    return sign * std::ldexp(significand, (exponent ? exponent : 1) - bias());
  }

  /// The nearest, ties to even; from half an ulp beyond the largest on, infinity.
  uint16_t nearest(float x) const {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits());
    if (std::isinf(x)) return sign | infinity;
    if (x == 0) return sign;
    const int exponent = std::max(std::ilogb(x), 1 - bias());
    // In units of the last place; the default rounding is to nearest, ties to even. A carry reaches the
    // exponent.
    const double units = std::nearbyint(std::ldexp(std::abs(double{x}), fraction_bits() - exponent));
    const double bits = units + std::ldexp(exponent + bias() - 1, fraction_bits());
    return sign | static_cast<uint16_t>(std::min<double>(bits, infinity));
  }
};
constexpr Format kHalf{5}, kBfloat{8};

struct Conversion {
  const char* name;
  Format format;
  Emitter widen, narrow;
  bool anonymous;  // for a machine about which nothing is known: half by hand
};
void PrintTo(const Conversion& c, std::ostream* out) { *out << c.name; }
const Conversion kConversions[] = {{"bf16", kBfloat, bf16_to_f32, f32_to_bf16, false},
                                   {"f16", kHalf, f16_to_f32, f32_to_f16, false},
                                   {"f16_by_hand", kHalf, f16_to_f32, f32_to_f16, true}};

class Narrow : public testing::TestWithParam<Conversion> {};

TEST_P(Narrow, WidensExactly) {
  const auto& c = GetParam();
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  for (unsigned width : {1, 3, 16}) {
    const auto x = GeneratedLoop(unary(c.widen), width, half_bits_type, c.anonymous).operator()<float>(bits);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = c.format.value(bits[i]);
      if (std::isnan(exact))
        ASSERT_TRUE(std::isnan(x[i])) << i;
      else
        ASSERT_TRUE(x[i] == exact && std::signbit(x[i]) == std::signbit(exact))
            << i << ": " << x[i] << ", " << exact;
    }
  }
}

TEST_P(Narrow, RoundsToNearestEven) {
  const auto& c = GetParam();
  std::vector<float> x = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 1e-30f, 3.4e38f, -3.4e38f, kInf, -kInf};
  for (uint32_t i = 0; i < (1 << 16); ++i) {
    const auto here = static_cast<float>(c.format.value(static_cast<uint16_t>(i)));
    const auto next = static_cast<float>(c.format.value(static_cast<uint16_t>(i + 1)));
    if (!std::isfinite(here)) continue;
    // Half's midpoints and bfloat16's are floats.
    const float middle = std::isfinite(next) ? here + (next - here) / 2 : here;
    for (float at : {here, middle})
      for (float y : {at, std::nextafter(at, kInf), std::nextafter(at, -kInf)}) x.push_back(y);
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 50021)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  const auto y = GeneratedLoop(unary(c.narrow), 16, float_type, c.anonymous).operator()<uint16_t>(x);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]))
      ASSERT_TRUE(std::isnan(c.format.value(y[i])));
    else
      ASSERT_EQ(y[i], c.format.nearest(x[i])) << x[i];
  }
}

TEST_P(Narrow, KeepsNan) {
  const auto& c = GetParam();
  std::vector<float> x;
  for (uint32_t payload : {1u, 0x1fffu, 0x2000u, 0xffffu, 0x10000u, 0x400000u, 0x7fffffu})
    for (uint32_t sign : {0u, 0x80000000u}) x.push_back(std::bit_cast<float>(0x7f800000u | payload | sign));
  for (uint16_t y : GeneratedLoop(unary(c.narrow), 4, float_type, c.anonymous).operator()<uint16_t>(x))
    EXPECT_TRUE(std::isnan(c.format.value(y))) << y;
}

INSTANTIATE_TEST_SUITE_P(Conversions, Narrow, testing::ValuesIn(kConversions),
                         [](const auto& test) { return std::string(test.param.name); });

template <class Out, class In>
std::vector<Out> to_int(const std::vector<In>& x, unsigned width = 4) {
  auto body = [](llvm::IRBuilderBase& b, llvm::ArrayRef<llvm::Value*> v) {
    return float_to_int(b, v[0], b.getIntNTy(8 * sizeof(Out)), std::is_signed_v<Out>);
  };
  return GeneratedLoop(body, width, sizeof(In) == 4 ? float_type : double_type).template operator()<Out>(x);
}

template <class Out>
void expect_truncates() {
  std::vector<float> x = {0.0f, -0.0f, 0.99f, -0.99f, 1.5f, 2.5f, 100.7f, 127.0f};
  if (std::is_signed_v<Out>) x.insert(x.end(), {-1.5f, -100.7f, -128.0f});
  for (unsigned width : {1, 3, 16}) {
    const auto y = to_int<Out>(x, width);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], static_cast<Out>(x[i])) << x[i];
  }
  EXPECT_EQ(to_int<Out>(std::vector<double>{100.9})[0], 100);
}

TEST(Conversions, IntegersAreTruncated) {
  expect_truncates<int8_t>();
  expect_truncates<uint8_t>();
  expect_truncates<int16_t>();
  expect_truncates<uint16_t>();
  expect_truncates<int32_t>();
  expect_truncates<uint32_t>();
  expect_truncates<int64_t>();
  expect_truncates<uint64_t>();
  EXPECT_EQ(to_int<int64_t>(std::vector<float>{0x1p62f, -0x1p63f})[1], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(to_int<int32_t>(std::vector<double>{2147483647.0})[0], 2147483647);
}

TEST(Conversions, NarrowIntegersWrap) {
  const auto y = to_int<uint8_t>(std::vector<float>{-1.0f, 256.0f, 257.5f, -300.0f, 0x1p31f, 0x1p40f});
  EXPECT_EQ(y, (std::vector<uint8_t>{255, 0, 1, 212, 0, 0}));
  EXPECT_EQ(to_int<int8_t>(std::vector<float>{200.0f, -129.0f}), (std::vector<int8_t>{-56, 127}));
}

TEST(Conversions, WideIntegersAreTheMachinesOwn) {
  const bool arm = host().triple.starts_with("aarch64");
  const auto much = [&](auto most) {
    using T = decltype(most);
    return arm ? most : std::numeric_limits<T>::min();
  };
  const int32_t most = much(INT32_MAX), of_nan = arm ? 0 : INT32_MIN;
  const int64_t most64 = much(INT64_MAX), of_nan64 = arm ? 0 : INT64_MIN;
  for (unsigned width : {1, 3, 4, 16}) {
    const std::vector<float> x{1e20f, -1e20f, kInf, kNan, -kInf, 0x1p31f, -0x1p31f};
    EXPECT_EQ(to_int<int32_t>(x, width),
              (std::vector<int32_t>{most, INT32_MIN, most, of_nan, INT32_MIN, most, INT32_MIN}));
    EXPECT_EQ(to_int<int64_t>(x, width), (std::vector<int64_t>{most64, INT64_MIN, most64, of_nan64, INT64_MIN,
                                                               int64_t{1} << 31, -(int64_t{1} << 31)}));
  }
  EXPECT_EQ(to_int<uint64_t>(std::vector<double>{-5.0, 1e30, HUGE_VAL, std::nan("")}),
            (std::vector<uint64_t>{0, UINT64_MAX, UINT64_MAX, 0}));
}

}  // namespace
}  // namespace graft::cpu
