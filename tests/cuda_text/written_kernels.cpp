// Runs the CUDA C++ that is not generated (cuda_code/attend, row_write, narrow_products, low_rank) on the CPU
// and compares it with plain loops. Compiled with the folder that `cuda_kernels samples` wrote among its
// include folders.
#include "shim.h"

#include <vector>

// All of it, or one part: -DONLY=rows.
#define PART_all 1
#define PART_attention 2
#define PART_rows 3
#define PART_products 4
#define PART_adapters 5
#define NUMBER(part) PART_##part
#define NUMBER_OF(part) NUMBER(part)
#ifndef ONLY
#define ONLY all
#endif
#define HAS(part) (NUMBER_OF(ONLY) == PART_all || NUMBER_OF(ONLY) == PART_##part)

#if HAS(attention)
#define attend attend0
#define join_parts join0
namespace n0 {
#include "attend0.inc"
}
#undef attend
#undef join_parts
#define attend attend1
#define join_parts join1
namespace n1 {
#include "attend1.inc"
}
#undef attend
#undef join_parts
#define attend attend2
#define join_parts join2
namespace n2 {
#include "attend2.inc"
}
#undef attend
#undef join_parts
#define attend attend3
#define join_parts join3
namespace n3 {
#include "attend3.inc"
}
#undef attend
#undef join_parts
#endif
#if HAS(rows)
#define write_rows write_rows1
namespace r1 {
#include "rows1.inc"
}
#undef write_rows
#define write_rows write_rows2
namespace r2 {
#include "rows2.inc"
}
#undef write_rows
#define write_rows write_rows4
namespace r4 {
#include "rows4.inc"
}
#undef write_rows
#define write_rows write_rows8
namespace r8 {
#include "rows8.inc"
}
#undef write_rows
#define write_rows write_rows16
namespace r16 {
#include "rows16.inc"
}
#undef write_rows

#endif
#if HAS(products)
#define dots dots0
namespace dots_0 {
#include "narrow_dots0.inc"
}
#undef dots
#define dots dots1
namespace dots_1 {
#include "narrow_dots1.inc"
}
#undef dots
#define dots dots2
namespace dots_2 {
#include "narrow_dots2.inc"
}
#undef dots
#define spread spread0
namespace spread_0 {
#include "narrow_spread0.inc"
}
#undef spread
#define spread spread1
namespace spread_1 {
#include "narrow_spread1.inc"
}
#undef spread
#define sums sums0
namespace sums_0 {
#include "narrow_sums0.inc"
}
#undef sums
#define sums sums1
namespace sums_1 {
#include "narrow_sums1.inc"
}
#undef sums
#endif
#if HAS(adapters)
#define lower lower0
namespace lower_0 {
#include "low_rank_lower0.inc"
}
#undef lower
#define lower lower1
namespace lower_1 {
#include "low_rank_lower1.inc"
}
#undef lower
#define lift lift0
namespace lift_0 {
#include "low_rank_lift0.inc"
}
#undef lift
#define lift lift1
namespace lift_1 {
#include "low_rank_lift1.inc"
}
#undef lift
#endif

static int wrong = 0, checked = 0;

static int finish() {
  printf("%d checked, %d wrong\n", checked, wrong);
  return wrong != 0 || checked == 0;
}

/// Whether it is one of the first, to be told of. After many there is nothing more to learn.
static bool count_wrong() {
  if (++wrong == 200) exit(finish());
  return wrong <= 5;
}

static double next_number() {
  static uint64_t state = 12345;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<double>(state >> 40) / double(1 << 23) - 1;  // -1 to 1
}

template <class Body>
static void over_grid(unsigned x, unsigned y, unsigned z, unsigned threads, Body body, unsigned cluster = 1) {
  shim::state.blocks.y = y;
  shim::state.blocks.z = z;
  for (shim::state.block.y = 0; shim::state.block.y < y; ++shim::state.block.y)
    for (shim::state.block.z = 0; shim::state.block.z < z; ++shim::state.block.z)
      shim::run_blocks({x, threads, true, cluster}, 0, x, body);
}

struct Sizes {
  int batch, groups, heads, queries, keys, parts;
};

/// Queries and values lie by positions, then heads; keys by heads, then positions.
template <class Plan, class Added, class Attend, class Join>
static void check_attend(int size, int rows, float (*number)(u16), u16 (*stored)(float),
                         Added (*as_added)(float), Attend run, Join join, const Sizes& s, bool biased) {
  const int all_heads = s.groups * s.heads, count = s.heads * s.queries, blocks = (count + rows - 1) / rows;
  const auto halves = [&](size_t n) {
    // What 16 bytes are read of at once begins at a multiple of them.
    std::vector<uint4> memory((n + 7) / 8);
    u16* each = reinterpret_cast<u16*>(memory.data());
    for (size_t i = 0; i < n; ++i) each[i] = stored(static_cast<float>(next_number()));
    return memory;
  };
  const auto q = halves(size_t(s.batch) * s.queries * all_heads * size),
             k = halves(size_t(s.batch) * s.groups * s.keys * size),
             v = halves(size_t(s.batch) * s.keys * s.groups * size);
  std::vector<Added> bias(size_t(s.batch) * s.queries * s.keys);
  std::vector<double> bias_numbers;
  for (size_t i = 0; i < bias.size(); ++i) {
    // One query sees nothing.
    const bool hidden = i / s.keys == 0 || next_number() > 0.5;
    const float x = hidden ? -INFINITY : static_cast<float>(static_cast<int>(next_number() * 8)) / 8;
    bias[i] = as_added(x);
    bias_numbers.push_back(x);
  }
  std::vector<u16> out(size_t(s.batch) * all_heads * s.queries * size, 0x7fff);
  std::vector<float> partial(size_t(s.batch) * s.groups * blocks * s.parts * rows * (size + 2), NAN);
  Plan plan{};
  const i64 width = all_heads * size;
  plan.query[0] = s.queries * width, plan.query[1] = size, plan.query[2] = width;
  plan.key[0] = i64(s.groups) * s.keys * size, plan.key[1] = i64(s.keys) * size, plan.key[2] = size;
  plan.value[0] = i64(s.keys) * s.groups * size, plan.value[1] = size, plan.value[2] = i64(s.groups) * size;
  plan.out[0] = i64(all_heads) * s.queries * size, plan.out[1] = i64(s.queries) * size, plan.out[2] = size;
  plan.bias[0] = i64(s.queries) * s.keys, plan.bias[1] = 0, plan.bias[2] = s.keys, plan.bias[3] = 1;
  plan.groups = s.groups, plan.heads_of_group = s.heads, plan.queries = s.queries, plan.keys = s.keys;
  plan.parts = s.parts;
  plan.scale = 0.25f;
  const auto* query = reinterpret_cast<const u16*>(q.data());
  const auto* key = reinterpret_cast<const u16*>(k.data());
  const auto* value = reinterpret_cast<const u16*>(v.data());
  const unsigned grid = unsigned(s.batch * s.groups);
  over_grid(grid, unsigned(s.parts), unsigned(blocks), 256, [&] {
    run(out.data(), query, key, value, biased ? bias.data() : nullptr, partial.data(), plan);
  });
  if (s.parts > 1) over_grid(grid, 1, unsigned(blocks), 256, [&] { join(out.data(), partial.data(), plan); });
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < all_heads; ++h)
      for (int i = 0; i < s.queries; ++i) {
        std::vector<double> scores(s.keys);
        double most = -INFINITY, total = 0;
        for (int t = 0; t < s.keys; ++t) {
          double dot = 0;
          for (int d = 0; d < size; ++d)
            dot += double(number(query[b * plan.query[0] + h * plan.query[1] + i * plan.query[2] + d])) *
                   number(key[b * plan.key[0] + h / s.heads * plan.key[1] + t * plan.key[2] + d]);
          scores[t] =
              dot * plan.scale + (biased ? bias_numbers[(size_t(b) * s.queries + i) * s.keys + t] : 0);
          most = fmax(most, scores[t]);
        }
        for (auto& score : scores) {
          score = most == -INFINITY ? 0 : exp(score - most);
          total += score;
        }
        for (int d = 0; d < size; ++d) {
          double want = 0;
          for (int t = 0; t < s.keys; ++t)
            want += scores[t] *
                    number(value[b * plan.value[0] + t * plan.value[2] + h / s.heads * plan.value[1] + d]);
          if (total > 0) want /= total;
          const double got = number(out[b * plan.out[0] + h * plan.out[1] + i * plan.out[2] + d]);
          ++checked;
          if (!(fabs(got - want) < 5e-3 + 5e-3 * fabs(want)) && count_wrong())
            printf("attend, size %d, keys %d, parts %d: %g, should be %g\n", size, s.keys, s.parts, got,
                   want);
        }
      }
}

static float as_float(float x) { return x; }

/// Rows of [2, places, 3] from [2, indices, 3], which lies by the last dimension first.
template <class Writes, class Element, class Run>
static void check_rows(Run run, std::vector<i64> index, int places) {
  const int count = int(index.size());
  constexpr size_t after = 16;  // what is written past the end is noticed
  std::vector<Element> to(size_t(2) * places * 3 + after), from(size_t(2) * count * 3);
  memset(to.data(), 1, to.size() * sizeof(Element));
  for (size_t i = 0; i < from.size(); ++i) memset(&from[i], int(i % 200 + 2), sizeof(Element));
  auto want = to, other = to;
  bool bad = false;
  for (const i64 at : index) bad = bad || at < 0 || at >= places;
  if (!bad)
    for (int a = 0; a < 2; ++a)
      for (int i = 0; i < count; ++i)
        for (int d = 0; d < 3; ++d)
          want[(size_t(a) * places + index[i]) * 3 + d] = from[(size_t(d) * count + i) * 2 + a];
  // Two of them in a launch, with the same rows.
  Writes all{};
  auto& plan = all.plans[0];
  plan.dims = 3;
  plan.sizes[0] = 3, plan.to[0] = 1, plan.from[0] = 2 * count;
  plan.sizes[1] = unsigned(count), plan.to[1] = 0, plan.from[1] = 2, plan.places[1] = 1;
  plan.sizes[2] = 2, plan.to[2] = places * 3, plan.from[2] = 1;
  plan.elements = unsigned(from.size());
  plan.rows = places, plan.indices = count, plan.index_step = 1, plan.row_step = 3;
  all.plans[1] = plan;
  all.to[0] = to.data(), all.to[1] = other.data();
  all.from[0] = all.from[1] = from.data();
  int failed[4] = {};
  over_grid(3, 2, 1, 128, [&] { run(all, index.data(), failed, 7); });
  ++checked;
  const auto differs = [&](const std::vector<Element>& rows) {
    return memcmp(rows.data(), want.data(), rows.size() * sizeof(Element)) != 0;
  };
  if (differs(to) || differs(other) || failed[0] != (bad ? 7 : 0)) {
    printf("rows of %zu bytes: wrong, mark %d\n", sizeof(Element), failed[0]);
    ++wrong;
  }
  // After a failure nothing is written.
  failed[0] = 5;
  memset(to.data(), 1, to.size() * sizeof(Element));
  const auto before = to;
  over_grid(3, 2, 1, 128, [&] { run(all, index.data(), failed, 7); });
  if (memcmp(to.data(), before.data(), to.size() * sizeof(Element)) != 0) {
    printf("rows of %zu bytes are written after a failure\n", sizeof(Element));
    ++wrong;
  }
}

/// A matrix whose rows begin at multiples of 16 bytes, `step` elements apart, with room behind it: what is
/// written there is noticed, not a crash.
template <class T>
struct Matrix {
  int rows, columns;
  i64 step;
  std::vector<uint4> memory;
  Matrix(int r, int c, i64 s) : rows(r), columns(c), step(s), memory((r * s + 1024) * sizeof(T) / 16 + 1) {}
  T* data() { return reinterpret_cast<T*>(memory.data()); }
  T& at(int r, int c) { return data()[r * step + c]; }
};

/// A small matrix [large, narrow], by rows or by columns.
static Matrix<float> small_matrix(int large, int narrow, bool turned, i64 (&steps)[2]) {
  Matrix<float> made(turned ? narrow : large, turned ? large : narrow, (turned ? large : narrow) + 4);
  steps[0] = turned ? 1 : made.step, steps[1] = turned ? made.step : 1;
  for (size_t i = 0; i < made.memory.size() * 4; ++i) made.data()[i] = static_cast<float>(next_number());
  return made;
}

/// Some of its numbers are infinite, if asked for.
template <class T>
static Matrix<T> large_matrix(int rows, int columns, T (*stored)(float), bool infinite = false) {
  Matrix<T> made(rows, columns, columns + 8);
  for (size_t i = 0; i < made.memory.size() * 16 / sizeof(T); ++i) made.data()[i] = stored(1000);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) made.at(r, c) = stored(static_cast<float>(next_number()));
  if (infinite) made.at(rows / 2, columns / 3) = stored(INFINITY), made.at(1, 2) = stored(-INFINITY);
  return made;
}

static void expect_near(const char* what, double got, double want, double error) {
  ++checked;
  const bool right = isfinite(want) ? fabs(got - want) <= error : isnan(want) ? isnan(got) : got == want;
  if (!right && count_wrong()) printf("%s: %g, should be %g\n", what, got, want);
}

/// Whether what a kernel may not touch is as it was.
static void expect_untouched(const char* what, float x) {
  if (x != 99) printf("%s writes outside of its result\n", what), ++wrong;
}

template <class Plan, class T, class Run>
static void check_dots(int slices, int height, int rows, int columns, int narrow, int across, bool turned,
                       float (*number)(T), T (*stored)(float), Run run) {
  auto x = large_matrix<T>(rows, columns, stored, narrow > across);
  Plan plan{rows, columns, narrow, x.step};
  auto w = small_matrix(columns, narrow, turned, plan.small);
  w.data()[0] = 0.5f;  // whose other parts are zeros
  Matrix<float> out(rows, narrow, narrow + 4);
  for (size_t i = 0; i < out.memory.size() * 4; ++i) out.data()[i] = 99;
  plan.other[0] = out.step, plan.other[1] = 1;
  over_grid(
      slices, (rows + height - 1) / height, (narrow + across - 1) / across, 512,
      [&] { run(out.data(), x.data(), w.data(), plan); }, slices);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < narrow; ++c) {
      double want = 0;
      for (int i = 0; i < columns; ++i)
        want += double(number(x.at(r, i))) * w.data()[i * plan.small[0] + c * plan.small[1]];
      expect_near("dots", out.at(r, c), want, 2e-5);
    }
    expect_untouched("dots", out.at(r, narrow));
  }
}

template <class Plan, class T, class Run>
static void check_sums(int rows, int columns, int narrow, int width, bool turned, float (*number)(T),
                       T (*stored)(float), Run run) {
  auto x = large_matrix<T>(rows, columns, stored, turned);
  Plan plan{rows, columns, narrow, x.step};
  auto t = small_matrix(rows, narrow, turned, plan.small);
  Matrix<float> out(narrow, columns, columns + 4);  // its columns are the result's rows
  for (size_t i = 0; i < out.memory.size() * 4; ++i) out.data()[i] = 99;
  plan.other[0] = 1, plan.other[1] = out.step;
  over_grid((columns + width - 1) / width, (narrow + 15) / 16, 1, 512,
            [&] { run(out.data(), x.data(), t.data(), plan); });
  for (int c = 0; c < narrow; ++c) {
    for (int i = 0; i < columns; ++i) {
      double want = 0;
      for (int r = 0; r < rows; ++r)
        want += double(number(x.at(r, i))) * t.data()[r * plan.small[0] + c * plan.small[1]];
      expect_near("sums", out.at(c, i), want, 2e-5);
    }
    expect_untouched("sums", out.at(c, columns));
  }
}

template <class Plan, class T, class Run>
static void check_spread(int rows, int columns, int narrow, bool turned, bool adds, float (*number)(T),
                         T (*stored)(float), Run run) {
  auto out = large_matrix<T>(rows, columns, stored), added = large_matrix<T>(rows, columns, stored);
  for (int r = 0; r < rows; ++r) out.at(r, columns) = stored(99);
  Plan plan{rows, columns, narrow, out.step};
  plan.added = added.step;
  auto b = small_matrix(columns, narrow, turned, plan.small);
  auto t = small_matrix(rows, narrow, !turned, plan.other);
  if (adds) b.data()[17] = INFINITY;
  over_grid((rows + 63) / 64, (columns + 255) / 256, 1, 256,
            [&] { run(out.data(), adds ? added.data() : nullptr, t.data(), b.data(), plan); });
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < columns; ++i) {
      double want = adds ? number(added.at(r, i)) : 0;
      for (int c = 0; c < narrow; ++c)
        want += double(t.data()[r * plan.other[0] + c * plan.other[1]]) *
                b.data()[i * plan.small[0] + c * plan.small[1]];
      expect_near("spread", number(out.at(r, i)), want, 1e-5 + (sizeof(T) == 2 ? 5e-3 * fabs(want) : 0));
    }
    expect_untouched("spread", number(out.at(r, columns)));
  }
}

/// Four adapters over rows of which some chose one, some several and some none; the B of the last has an
/// infinity, which is for those who chose it.
template <class T, class Adapters, class Choice, class Plan, class LiftAdapters, class LiftChoice,
          class LiftPlan>
static void check_low_rank(int slices, std::vector<int> ranks, int across, bool in_place, float (*number)(T),
                           T (*stored)(float), void (*run_lower)(float*, const T*, Adapters, Choice, Plan),
                           void (*run_lift)(T*, const T*, const float*, LiftAdapters, LiftChoice, LiftPlan)) {
  // Of two layers: the first adapter and the last add to the columns from 256 on, the others to those before.
  constexpr int batch = 5, each = 7, rows = batch * each, in = 136, out = 520, slots = 6, second = 256;
  auto x = large_matrix<T>(rows, in, stored), y = large_matrix<T>(rows, out, stored), apart = y;
  auto& result = in_place ? y : apart;
  const auto before = y;
  for (int r = 0; r < rows; ++r) result.at(r, out) = stored(99);
  bool table[slots][batch];  // by columns
  for (int s = 0; s < slots; ++s)
    for (int b = 0; b < batch; ++b) table[s][b] = b == 1 ? false : b == 3 ? true : next_number() > 0.3;
  const int slot_of[] = {4, 0, 5, 2};
  Adapters all{};
  std::vector<Matrix<float>> a, b;
  std::vector<float> scaling;
  int width = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    i64 steps[2];
    a.push_back(small_matrix(in, ranks[i], true, steps));
    const bool is_second = i == 0 || i + 1 == ranks.size();
    all.begin[i] = is_second ? second : 0, all.end[i] = is_second ? out : second;
    b.push_back(small_matrix(all.end[i] - all.begin[i], ranks[i], false, steps));
    // With no gaps.
    a[i].step = in, b[i].step = ranks[i];
    scaling.push_back(0.5f + static_cast<float>(i));
  }
  b.back().data()[ranks.back()] = INFINITY;
  for (size_t i = 0; i < ranks.size(); ++i) {
    all.a[i] = a[i].data(), all.b[i] = b[i].data(), all.scaling[i] = &scaling[i];
    all.slot[i] = slot_of[i], all.rank[i] = ranks[i], all.first[i] = width;
    width += ranks[i];
  }
  all.count = int(ranks.size());
  const Choice choice{&table[0][0], {1, batch}, each};
  Matrix<float> t(rows, width, width);
  for (size_t i = 0; i < t.memory.size() * 4; ++i)
    t.data()[i] = 1000;  // NaN would be noticed, and computed again
  Plan down{rows, in, 0, x.step, {1, in}, {t.step, 1}, 0};
  LiftPlan up{rows, out, 0, result.step, {0, 1}, {t.step, 1}, y.step};
  int highest = 0;
  for (const int rank : ranks) highest = rank > highest ? rank : highest;
  over_grid(
      slices, (rows + 15) / 16, (highest + across - 1) / across * all.count, 512,
      [&] { run_lower(t.data(), x.data(), all, choice, down); }, slices);
  LiftAdapters same;
  memcpy(&same, &all, sizeof all);
  const LiftChoice again{&table[0][0], {1, batch}, each};
  over_grid((rows + 63) / 64, (out + 255) / 256, 1, 256,
            [&] { run_lift(result.data(), y.data(), t.data(), same, again, up); });
  auto old = before;
  std::vector<double> low(width);
  for (int r = 0; r < rows; ++r) {
    for (size_t i = 0; i < ranks.size(); ++i)
      for (int k = 0; k < ranks[i]; ++k) {
        double sum = 0;
        for (int j = 0; j < in; ++j) sum += double(number(x.at(r, j))) * a[i].at(k, j);
        low[all.first[i] + k] = sum * scaling[i];
      }
    for (int c = 0; c < out; ++c) {
      double want = number(old.at(r, c));
      for (size_t i = 0; i < ranks.size(); ++i)
        for (int k = 0; k < ranks[i] && table[slot_of[i]][r / each]; ++k)
          if (all.begin[i] <= c && c < all.end[i])
            want += low[all.first[i] + k] * b[i].at(c - all.begin[i], k);
      expect_near("low_rank", number(result.at(r, c)), want, 1e-3 + (sizeof(T) == 2 ? 5e-3 * fabs(want) : 0));
    }
    expect_untouched("low_rank", number(result.at(r, out)));
  }
}

#if HAS(products)
static void check_narrow_products() {
  for (const bool wide : {false, true}) {
    const int narrow = wide ? 36 : 8;
    check_dots<dots_0::Plan>(4, 32, 70, 2120, narrow + 1, 16, true, bf16_to_float, float_to_bf16,
                             dots_0::dots0);
    check_dots<dots_1::Plan>(1, 16, 33, 520, narrow * 2, 48, false, half_to_float, float_to_half,
                             dots_1::dots1);
    check_dots<dots_2::Plan>(2, 16, 5, 1064, narrow + 3, 32, wide, as_float, as_float, dots_2::dots2);
    check_sums<sums_0::Plan>(301, 136, narrow + 1, 64, wide, bf16_to_float, float_to_bf16, sums_0::sums0);
    check_sums<sums_1::Plan>(37, 72, narrow, 32, !wide, as_float, as_float, sums_1::sums1);
    for (const bool adds : {false, true}) {
      check_spread<spread_0::Plan>(35, 264, narrow, false, adds, bf16_to_float, float_to_bf16,
                                   spread_0::spread0);
      check_spread<spread_1::Plan>(38, 136, narrow + 1, wide, adds, as_float, as_float, spread_1::spread1);
    }
  }
}
#endif

#if HAS(adapters)
static void check_adapters() {
  check_low_rank(2, {16, 4, 8, 36}, 16, true, bf16_to_float, float_to_bf16, lower_0::lower0, lift_0::lift0);
  check_low_rank(1, {3, 16, 1, 40}, 32, false, as_float, as_float, lower_1::lower1, lift_1::lift1);
}
#endif

#if HAS(attention)
static void check_attention() {
  const Sizes sizes[] = {{1, 2, 4, 1, 70, 1}, {2, 1, 3, 2, 1, 1}, {1, 2, 1, 1, 33, 1}, {1, 1, 5, 1, 150, 3}};
  for (const auto& s : sizes)
    for (const bool biased : {false, true}) {
      check_attend<n0::Plan>(64, 4, bf16_to_float, float_to_bf16, float_to_bf16, n0::attend0, n0::join0, s,
                             biased);
      check_attend<n1::Plan>(128, 1, half_to_float, float_to_half, as_float, n1::attend1, n1::join1, s,
                             biased);
      check_attend<n2::Plan>(32, 3, bf16_to_float, float_to_bf16, as_float, n2::attend2, n2::join2, s,
                             biased);
      check_attend<n3::Plan>(256, 2, half_to_float, float_to_half, float_to_half, n3::attend3, n3::join3, s,
                             biased);
    }
}
#endif

#if HAS(rows)
static void check_row_writes_to(const std::vector<i64>& index, int places) {
  check_rows<r1::Writes, r1::element>(r1::write_rows1, index, places);
  check_rows<r2::Writes, r2::element>(r2::write_rows2, index, places);
  check_rows<r4::Writes, r4::element>(r4::write_rows4, index, places);
  check_rows<r8::Writes, r8::element>(r8::write_rows8, index, places);
  check_rows<r16::Writes, r16::element>(r16::write_rows16, index, places);
}

static void check_row_writes() {
  for (const auto& index : std::vector<std::vector<i64>>{{4}, {0, 3, 1}, {2, 5}, {-1, 0}})
    check_row_writes_to(index, 5);
  std::vector<i64> many;  // more elements than threads
  for (i64 i = 0; i < 150; ++i) many.push_back(299 - 2 * i);
  check_row_writes_to(many, 300);
}
#endif

int main() {
#if HAS(products)
  check_narrow_products();
#endif
#if HAS(adapters)
  check_adapters();
#endif
#if HAS(attention)
  check_attention();
#endif
#if HAS(rows)
  check_row_writes();
#endif
  return finish();
}
