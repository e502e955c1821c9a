// The wavelets of WaveFT: each filter is at right angles to itself moved by any even number of places.
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/methods/wavelets.h"

namespace graft::adapters {
namespace {

TEST(Wavelets, FiltersAreOrthonormal) {
  ASSERT_EQ(wavelet_names().size(), 24U);
  for (const auto name : wavelet_names()) {
    const auto& filter = wavelet_filter(name);
    double sum = 0;
    for (const double each : filter) sum += each;
    const double exact = name == "coif4" ? 0.05 : 1e-8;  // PEFT's coif4 is a little off
    EXPECT_NEAR(sum, std::sqrt(2.0), exact) << name;
    for (size_t moved = 0; moved < filter.size(); moved += 2) {
      double product = 0;
      for (size_t i = moved; i < filter.size(); ++i) product += filter[i] * filter[i - moved];
      EXPECT_NEAR(product, moved == 0 ? 1 : 0, exact) << name << " moved by " << moved;
    }
  }
}

// PEFT's table has 48 numbers for it.
TEST(Wavelets, Coif5HasThirty) { EXPECT_EQ(wavelet_filter("coif5").size(), 30U); }

}  // namespace
}  // namespace graft::adapters
