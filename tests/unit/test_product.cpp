// Products into given memory, whichever way round ATen is asked for them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "targets/cpu/products.h"

namespace graft::runtime {
namespace {

struct Sides {
  at::Tensor a, b;
};

/// a b with either factor as it is or transposed in memory, and with rows that lie apart.
std::vector<Sides> sides(int64_t m, int64_t k, int64_t n) {
  const auto plain = [](int64_t rows, int64_t columns) { return at::randn({rows, columns}); };
  const auto turned = [](int64_t rows, int64_t columns) { return at::randn({columns, rows}).t(); };
  const auto apart = [](int64_t rows, int64_t columns) {
    return at::randn({columns, rows + 3}).narrow(1, 1, rows).t();
  };
  return {{plain(m, k), plain(k, n)},
          {plain(m, k), turned(k, n)},
          {turned(m, k), turned(k, n)},
          {plain(m, k), apart(k, n)}};
}

void expect_close(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  if (got.numel() == 0) return;
  EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), 1e-4) << got.sizes();
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kDouble); }

constexpr std::array<std::array<int64_t, 3>, 7> kShapes = {
    {{1, 1, 1}, {8, 9, 9}, {9, 9, 9}, {33, 24, 70}, {64, 64, 8}, {0, 9, 9}, {17, 0, 11}}};

TEST(Product, IsTheProductForAnyLayout) {
  for (const auto& [m, k, n] : kShapes)
    for (const auto& [a, b] : sides(m, k, n))
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        const auto out = at::full({m, n}, 7, dtype);
        cpu::multiply_into(out, a.to(dtype), b.to(dtype));
        expect_close(out, wide(a).mm(wide(b)));
        const auto strip = at::full({m, n + 5}, 7, dtype).narrow(1, 2, n);
        cpu::multiply_into(strip, a.to(dtype), b.to(dtype));
        expect_close(strip, wide(a).mm(wide(b)));
      }
}

TEST(Product, AddsWhateverBroadcasts) {
  for (const auto& [m, k, n] : kShapes)
    for (const auto& [a, b] : sides(m, k, n)) {
      for (const auto& added : {at::randn({n}), at::randn({m, n}), at::randn({1, n}), at::randn({m, 1}),
                                at::randn({n, m}).t(), at::randn({})}) {
        const auto out = at::full({m, n}, 7, at::kFloat);
        cpu::multiply_and_add_into(out, added, a, b, 0.5, -2);
        expect_close(out, 0.5 * wide(added) - 2 * wide(a).mm(wide(b)));
      }
      const auto start = at::randn({m, n}), out = start.clone();
      cpu::multiply_and_add_into(out, out, a, b, 1, 1);
      expect_close(out, wide(start) + wide(a).mm(wide(b)));
    }
}

}  // namespace
}  // namespace graft::runtime
