// Integer expressions over loop variables: whatever is simplified keeps its value at every point.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "codegen/index.h"
#include "codegen/space.h"

namespace graft::codegen {
namespace {

using Point = std::vector<int64_t>;
using Sizes = std::vector<int64_t>;

int64_t floor_quotient(int64_t a, int64_t b) { return (a - ((a % b) + b) % b) / b; }
int64_t floor_remainder(int64_t a, int64_t b) { return ((a % b) + b) % b; }

/// The expression as it stands, simplified or not.
int64_t value_at(const Index& index, const Point& point) {
  int64_t sum = index.constant();
  for (const auto& [coefficient, atom] : index.terms()) {
    switch (atom->kind) {
      case Atom::Kind::variable:
        sum += coefficient * point[static_cast<size_t>(atom->variable)];
        break;
      case Atom::Kind::quotient:
        sum += coefficient * floor_quotient(value_at(atom->inside, point), atom->divisor);
        break;
      default:
        sum += coefficient * floor_remainder(value_at(atom->inside, point), atom->divisor);
        break;
    }
  }
  return sum;
}

/// A random expression, built by the operators of Index, and what it should be at the point.
struct Sample {
  Index index;
  int64_t value;
};

Sizes extents() { return *rc::gen::container<Sizes>(3, rc::gen::inRange<int64_t>(1, 13)); }
Point point_in(const Sizes& sizes) {
  Point point;
  for (const int64_t size : sizes) point.push_back(*rc::gen::inRange<int64_t>(0, size));
  return point;
}

Sample sample(const Sizes& sizes, const Point& point, int depth) {
  const int choice = depth == 0 ? *rc::gen::inRange(0, 2) : *rc::gen::inRange(0, 8);
  switch (choice) {
    case 0: {
      const auto v = *rc::gen::inRange<size_t>(0, sizes.size());
      return {Index::variable(static_cast<int>(v), sizes[v]), point[v]};
    }
    case 1: {
      const auto c = *rc::gen::inRange<int64_t>(-20, 21);
      return {Index(c), c};
    }
    case 2:
    case 3: {
      const auto a = sample(sizes, point, depth - 1), b = sample(sizes, point, depth - 1);
      return choice == 2 ? Sample{a.index + b.index, a.value + b.value}
                         : Sample{a.index - b.index, a.value - b.value};
    }
    case 4: {
      const auto a = sample(sizes, point, depth - 1);
      const auto factor = *rc::gen::inRange<int64_t>(-6, 13);
      return {a.index * factor, a.value * factor};
    }
    case 5:
    case 6: {
      const auto a = sample(sizes, point, depth - 1);
      const auto divisor = *rc::gen::inRange<int64_t>(1, 13);
      return {a.index / divisor, floor_quotient(a.value, divisor)};
    }
    default: {
      const auto a = sample(sizes, point, depth - 1);
      const auto divisor = *rc::gen::inRange<int64_t>(1, 13);
      return {a.index % divisor, floor_remainder(a.value, divisor)};
    }
  }
}

TEST(Index, SimplifiedExpressionsKeepTheirValue) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = extents();
    const auto point = point_in(sizes);
    for (int times = 0; times < 20; ++times) {
      const auto s = sample(sizes, point, 5);
      RC_ASSERT(value_at(s.index, point) == s.value);
    }
  }));
}

TEST(Index, RangeHoldsEveryValue) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = extents();
    const auto point = point_in(sizes);
    const auto s = sample(sizes, point, 4);
    RC_ASSERT(s.index.min() <= s.value);
    RC_ASSERT(s.value <= s.index.max());
    if (s.index.is_constant()) RC_ASSERT(s.index.constant() == s.value);
  }));
}

TEST(Index, SubstitutionIsEvaluationAtAnotherPoint) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = extents(), others = extents();
    const auto point = point_in(others);
    // Each variable becomes an expression of other ones that stays within its extent.
    std::vector<Index> table;
    Point inner;
    for (const int64_t size : sizes) {
      const auto s = sample(others, point, 2);
      table.push_back(s.index % size);
      inner.push_back(floor_remainder(s.value, size));
    }
    for (int times = 0; times < 20; ++times) {
      const auto s = sample(sizes, inner, 4);
      RC_ASSERT(value_at(s.index.substitute(table), point) == s.value);
    }
  }));
}

TEST(Index, EqualExpressionsAreOneInAnyOrder) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = extents();
    const auto point = point_in(sizes);
    const auto a = sample(sizes, point, 3), b = sample(sizes, point, 3), c = sample(sizes, point, 3);
    RC_ASSERT((a.index + b.index) + c.index == c.index + (b.index + a.index));
    RC_ASSERT((a.index - a.index) == Index(0));
    RC_ASSERT(!(a.index < b.index && b.index < a.index));
    RC_ASSERT((a.index == b.index) == (!(a.index < b.index) && !(b.index < a.index)));
  }));
}

TEST(Index, QuotientAndRemainderMakeTheWhole) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = extents();
    const auto point = point_in(sizes);
    const auto s = sample(sizes, point, 4);
    const auto divisor = *rc::gen::inRange<int64_t>(1, 30);
    RC_ASSERT(value_at((s.index / divisor) * divisor + s.index % divisor, point) == s.value);
  }));
}

TEST(Index, DivisionsThatVanish) {
  const auto i = Index::variable(0, 5), j = Index::variable(1, 8);
  EXPECT_EQ((i * 8 + j) / 8, i);
  EXPECT_EQ((i * 8 + j) % 8, j);
  EXPECT_EQ(j / 8, Index(0));
  EXPECT_EQ((j - 8) / 8, Index(-1));
  EXPECT_EQ((i * 16 + j * 2) / 8, i * 2 + j / 4);
  EXPECT_EQ((j / 2) / 4, Index(0));
  EXPECT_EQ((j % 4) % 2, j % 2);
  EXPECT_EQ(Index::variable(2, 1), Index(0));
  EXPECT_EQ(to_string(i * 8 + j - 3), "8*i0 + i1 - 3");
  EXPECT_EQ(to_string((j + 1) / 2 * -1), "-(i1 + 1)/2");
}

TEST(Index, no_division_of_a_sum_that_carries) {
  const auto i = Index::variable(0, 5), j = Index::variable(1, 9);
  EXPECT_FALSE((i * 8 + j) / 8 == i);
  EXPECT_FALSE(((i * 8 + j) % 8).is_affine());
}

Sizes shape() {
  return *rc::gen::container<Sizes>(*rc::gen::inRange<size_t>(0, 5), rc::gen::inRange<int64_t>(1, 6));
}
int64_t product(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

TEST(Index, UnravelIsTheInverseOfLinear) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = shape();
    std::vector<Index> place;
    for (size_t d = 0; d < sizes.size(); ++d) place.push_back(Index::variable(static_cast<int>(d), sizes[d]));
    const auto number = linear(place, sizes);
    RC_ASSERT(number.min() == 0);
    RC_ASSERT(number.max() == product(sizes) - 1);
    RC_ASSERT(unravel(number, sizes) == place);
  }));
}

TEST(Index, UnravelGivesPlacesInsideTheShape) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = shape();
    const auto all = Index::variable(0, product(sizes));
    const auto place = unravel(all, sizes);
    const auto n = *rc::gen::inRange<int64_t>(0, product(sizes));
    int64_t number = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const auto at = value_at(place[d], {n});
      RC_ASSERT(at >= 0);
      RC_ASSERT(at < sizes[d]);
      number = number * sizes[d] + at;
    }
    RC_ASSERT(number == n);
  }));
}

TEST(Index, SplitsAreDivisorsThatAVariableMeets) {
  const auto i = Index::variable(0, 24);
  std::map<int, std::vector<int64_t>> splits;
  ((i / 4) * 100 + (i * 2) % 12).collect_splits(splits);
  ASSERT_EQ(splits.size(), 1U);
  EXPECT_EQ(splits.at(0), (std::vector<int64_t>{4, 6}));
}

// --- spaces

Space random_space(const Sizes& sizes) {
  Sizes reduced;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (*rc::gen::arbitrary<bool>()) reduced.push_back(static_cast<int64_t>(d));
  return space_over(sizes, reduced);
}

/// Whether `coarse` is `fine` with neighbours of one sort joined.
bool refines(const Space& fine, const Space& coarse) {
  size_t next = 0;
  for (const auto& dim : coarse) {
    int64_t extent = 1;
    while (next < fine.size() && extent < dim.extent && fine[next].reduced == dim.reduced)
      extent *= fine[next++].extent;
    if (extent != dim.extent) return false;
  }
  return next == fine.size();
}

/// Whether every dimension of the shape is one or several of the space's.
bool fits(const Space& space, const Sizes& sizes) {
  size_t next = 0;
  for (const int64_t size : sizes) {
    int64_t extent = 1;
    while (next < space.size() && extent < size) extent *= space[next++].extent;
    if (extent != size) return false;
  }
  return next == space.size();
}

/// The same number of elements in another shape: neighbours joined, or one cut.
Sizes reshaped(Sizes sizes) {
  if (sizes.empty()) return sizes;
  for (int times = *rc::gen::inRange(0, 3); times > 0; --times) {
    const auto d = *rc::gen::inRange<size_t>(0, sizes.size());
    if (d + 1 < sizes.size() && *rc::gen::arbitrary<bool>()) {
      sizes[d] *= sizes[d + 1];
      sizes.erase(sizes.begin() + static_cast<int64_t>(d) + 1);
    } else {
      for (int64_t k = 2; k < sizes[d]; ++k)
        if (sizes[d] % k == 0) {
          sizes.insert(sizes.begin() + static_cast<int64_t>(d), k);
          sizes[d + 1] /= k;
          break;
        }
    }
  }
  return sizes;
}

TEST(Space, RefineCutsAndNeverMoves) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = shape();
    const auto space = random_space(sizes);
    const auto other = reshaped(sizes);
    const auto finer = refine(space, other);
    if (!finer) return;
    RC_ASSERT(points(*finer) == points(space));
    RC_ASSERT(kept_points(*finer) == kept_points(space));
    RC_ASSERT(refines(*finer, space));
    RC_ASSERT(fits(*finer, other));
  }));
}

TEST(Space, RefineOfItsOwnShapeIsItself) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = shape();
    const auto space = space_over(sizes);
    const auto finer = refine(space, sizes);
    RC_ASSERT(finer.has_value());
    RC_ASSERT(finer->size() == space.size());
  }));
}

TEST(Space, RefineKeptLeavesReducedDimensionsAlone) {
  EXPECT_TRUE(rc::check([] {
    const auto space = random_space(shape());
    Sizes kept;
    for (const auto& dim : space)
      if (!dim.reduced) kept.push_back(dim.extent);
    const auto other = reshaped(kept);
    const auto finer = refine_kept(space, other);
    if (!finer) return;
    RC_ASSERT(refines(*finer, space));
    Space left;
    for (const auto& dim : *finer)
      if (!dim.reduced) left.push_back(dim);
    RC_ASSERT(fits(left, other));
  }));
}

TEST(Space, UniteHasTheReductionsOfBoth) {
  EXPECT_TRUE(rc::check([] {
    const auto sizes = shape();
    const auto a = random_space(sizes), b = space_over(reshaped(sizes));
    const auto both = unite(a, b), turned = unite(b, a);
    RC_ASSERT(both.has_value() == turned.has_value());
    if (!both) return;
    RC_ASSERT(points(*both) == points(a));
    RC_ASSERT(kept_points(*both) == kept_points(a));
    RC_ASSERT(kept_points(*turned) == kept_points(a));
    RC_ASSERT(both->size() == turned->size());
  }));
}

TEST(Space, ShapesThatNestAreCutToTheFiner) {
  const auto both = unite(space_over({2, 6}), space_over({4, 3}));
  ASSERT_TRUE(both);
  ASSERT_EQ(both->size(), 3U);
  EXPECT_EQ((*both)[0].extent, 2);
  EXPECT_EQ((*both)[1].extent, 2);
  EXPECT_EQ((*both)[2].extent, 3);
}

TEST(Space, no_union_of_shapes_that_do_not_nest) {
  EXPECT_FALSE(unite(space_over({2, 3}), space_over({3, 2})));
  EXPECT_FALSE(refine(space_over({2, 3}), {3, 2}));
  EXPECT_FALSE(refine_kept(space_over({2, 7, 3}, {1}), {3, 2}));
}

TEST(Space, no_union_of_different_reductions) {
  EXPECT_FALSE(unite(space_over({4, 6}, {0}), space_over({4, 6}, {1})));
  EXPECT_TRUE(unite(space_over({4, 6}, {1}), space_over({4, 6}, {1})));
  EXPECT_TRUE(unite(space_over({4, 6}, {1}), space_over({24})));
  EXPECT_TRUE(unite(space_over({4, 6}, {1}), space_over({2, 2, 6}, {2})));
}

TEST(Space, DimensionsOfOneAreNone) {
  EXPECT_EQ(space_over({1, 5, 1}, {0}).size(), 1U);
  EXPECT_EQ(points(space_over({})), 1);
}

}  // namespace
}  // namespace graft::codegen
