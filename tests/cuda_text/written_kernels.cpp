// Runs the CUDA C++ that is not generated (cuda_code/attend, cuda_code/row_write) on the CPU and compares it
// with plain loops. Compiled with the folder that `cuda_kernels samples` wrote among its include folders.
#include "shim.h"

#include <vector>

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

static int wrong = 0, checked = 0;

static double next_number() {
  static uint64_t state = 12345;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<double>(state >> 40) / double(1 << 23) - 1;  // -1 to 1
}

template <class Body>
static void over_grid(unsigned x, unsigned y, unsigned z, unsigned threads, Body body) {
  shim::state.blocks.y = y;
  shim::state.blocks.z = z;
  for (shim::state.block.y = 0; shim::state.block.y < y; ++shim::state.block.y)
    for (shim::state.block.z = 0; shim::state.block.z < z; ++shim::state.block.z)
      shim::run_blocks({x, threads, true}, 0, x, body);
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
          if (!(fabs(got - want) < 5e-3 + 5e-3 * fabs(want)) && wrong++ < 5)
            printf("attend, size %d, keys %d, parts %d: %g, should be %g\n", size, s.keys, s.parts, got,
                   want);
        }
      }
}

static float as_float(float x) { return x; }

/// Rows of [2, places, 3] from [2, indices, 3], which lies by the last dimension first.
template <class Plan, class Element, class Run>
static void check_rows(Run run, std::vector<i64> index, int places) {
  const int count = int(index.size());
  constexpr size_t after = 16;  // what is written past the end is noticed
  std::vector<Element> to(size_t(2) * places * 3 + after), from(size_t(2) * count * 3);
  memset(to.data(), 1, to.size() * sizeof(Element));
  for (size_t i = 0; i < from.size(); ++i) memset(&from[i], int(i % 200 + 2), sizeof(Element));
  auto want = to;
  bool bad = false;
  for (const i64 at : index) bad = bad || at < 0 || at >= places;
  if (!bad)
    for (int a = 0; a < 2; ++a)
      for (int i = 0; i < count; ++i)
        for (int d = 0; d < 3; ++d)
          want[(size_t(a) * places + index[i]) * 3 + d] = from[(size_t(d) * count + i) * 2 + a];
  Plan plan{};
  plan.dims = 3;
  plan.sizes[0] = 3, plan.to[0] = 1, plan.from[0] = 2 * count;
  plan.sizes[1] = unsigned(count), plan.to[1] = 0, plan.from[1] = 2, plan.places[1] = 1;
  plan.sizes[2] = 2, plan.to[2] = places * 3, plan.from[2] = 1;
  plan.elements = unsigned(from.size());
  plan.rows = places, plan.indices = count, plan.index_step = 1, plan.row_step = 3;
  int failed[4] = {};
  over_grid(3, 1, 1, 128, [&] { run(to.data(), from.data(), index.data(), plan, failed, 7); });
  ++checked;
  if (memcmp(to.data(), want.data(), to.size() * sizeof(Element)) != 0 || failed[0] != (bad ? 7 : 0)) {
    printf("rows of %zu bytes: wrong, mark %d\n", sizeof(Element), failed[0]);
    ++wrong;
  }
  // After a failure nothing is written.
  failed[0] = 5;
  memset(to.data(), 1, to.size() * sizeof(Element));
  const auto before = to;
  over_grid(3, 1, 1, 128, [&] { run(to.data(), from.data(), index.data(), plan, failed, 7); });
  if (memcmp(to.data(), before.data(), to.size() * sizeof(Element)) != 0) {
    printf("rows of %zu bytes are written after a failure\n", sizeof(Element));
    ++wrong;
  }
}

int main() {
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
  for (const auto& index : std::vector<std::vector<i64>>{{4}, {0, 3, 1}, {2, 5}, {-1, 0}}) {
    check_rows<r1::Plan, r1::element>(r1::write_rows1, index, 5);
    check_rows<r2::Plan, r2::element>(r2::write_rows2, index, 5);
    check_rows<r4::Plan, r4::element>(r4::write_rows4, index, 5);
    check_rows<r8::Plan, r8::element>(r8::write_rows8, index, 5);
    check_rows<r16::Plan, r16::element>(r16::write_rows16, index, 5);
  }
  printf("%d checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
