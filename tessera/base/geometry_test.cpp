#include "tessera/base/geometry.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Where each element lies, in row-major order: what a geometry means.
std::vector<int64_t> places(const Geometry& geometry) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < numel(geometry.shape); ++i) {
    int64_t at = geometry.offset;
    int64_t left = i;
    for (size_t d = geometry.shape.size(); d-- > 0;) {
      at += left % geometry.shape[d] * geometry.strides[d];
      left /= geometry.shape[d];
    }
    out.push_back(at);
  }
  return out;
}

// compose() must reach what reading `outer` out of `inner`'s elements reaches.
void expect_composes(const Geometry& inner, const Geometry& outer) {
  const auto composed = compose(inner, outer);
  ASSERT_TRUE(composed);
  const auto inner_places = places(inner);
  std::vector<int64_t> wanted;
  for (const int64_t i : places(outer)) wanted.push_back(inner_places[static_cast<size_t>(i)]);
  EXPECT_EQ(places(*composed), wanted);
}

TEST(Geometry, DenseIsRowMajor) {
  EXPECT_EQ(places(dense({2, 3})), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Geometry, ExtentIsPastTheLastElement) {
  EXPECT_EQ(extent(dense({2, 3})), 6);
  EXPECT_EQ(extent({{2, 3}, {10, 2}, 5}), 5 + 10 + 4 + 1);
  EXPECT_EQ(extent({{0, 3}, {3, 1}, 5}), 0);
  EXPECT_EQ(extent({{4}, {0}, 2}), 3);
}

TEST(Geometry, SameElementsIgnoresStridesThatDoNotMatter) {
  EXPECT_TRUE(same_elements({{1, 3}, {9, 1}}, {{1, 3}, {3, 1}}));
  EXPECT_FALSE(same_elements({{2, 3}, {9, 1}}, {{2, 3}, {3, 1}}));
  EXPECT_FALSE(same_elements({{3}, {1}, 1}, {{3}, {1}, 0}));
  EXPECT_TRUE(same_elements({{0}, {1}, 1}, {{0}, {5}, 0}));
}

TEST(Geometry, ComposesViewsOfViews) {
  const Geometry transposed{{3, 4}, {1, 3}};
  expect_composes(dense({2, 6}), dense({3, 4}));
  expect_composes(transposed, {{4, 3}, {1, 4}});     // and back
  expect_composes(transposed, {{3, 2}, {4, 1}, 1});  // columns 1 and 2
  expect_composes(transposed, {{2, 4}, {4, 1}, 4});  // rows 1 and 2
  expect_composes({{3, 4}, {8, 2}, 1}, dense({3, 2, 2}));
  expect_composes({{5}, {0}, 3}, dense({5}));           // broadcast
  expect_composes(dense({3, 4}), {{2, 3}, {0, 4}, 2});  // a column, twice
}

TEST(Geometry, ComposeSaysWhereStridesCannot) {
  EXPECT_FALSE(compose({{3, 4}, {1, 3}}, dense({12})));    // a flattened transpose
  EXPECT_FALSE(compose({{3, 4}, {8, 1}}, dense({2, 6})));  // rows with a gap, cut elsewhere
  EXPECT_FALSE(compose({{3, 4}, {8, 1}}, {{3}, {3}, 0}));  // steps across rows
  EXPECT_FALSE(compose(dense({4}), {{2}, {1}, 9}));        // starts outside
}

TEST(Geometry, MemoryOrderOfPermutedDenseTensors) {
  const auto channels_last = memory_order({{2, 3, 4, 5}, {60, 1, 15, 3}});
  ASSERT_TRUE(channels_last);
  EXPECT_EQ(channels_last->dims, (std::vector<int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(memory_order(dense({2, 3}))->dims, (std::vector<int64_t>{0, 1}));
  EXPECT_FALSE(memory_order({{2, 3}, {4, 1}})) << "has a gap";
  EXPECT_FALSE(memory_order({{2, 3}, {0, 1}})) << "overlaps";
  EXPECT_FALSE(memory_order({{2, 3}, {3, 1}, 1})) << "has an offset";
  EXPECT_EQ(memory_order({{2, 0}, {5, 7}, 3})->dims, (std::vector<int64_t>{0, 1}));
}

}  // namespace
}  // namespace tessera
