#include "tessera/backend/cpu/layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera::cpu {
namespace {

// The elements that a geometry names, row by row, in memory that holds 0, 1, 2, ...
std::vector<int64_t> elements(const Geometry& geometry) {
  std::vector<int64_t> out = {geometry.offset};
  for (size_t dim = 0; dim < geometry.shape.size(); ++dim) {
    std::vector<int64_t> next;
    for (const int64_t start : out) {
      for (int64_t i = 0; i < geometry.shape[dim]; ++i) {
        next.push_back(start + i * geometry.strides[dim]);
      }
    }
    out = std::move(next);
  }
  return out;
}

// Where each element of the plain tensor lies in the layout.
std::vector<int64_t> places(const Layout& layout, const Shape& shape) {
  return elements(logical_order(layout, shape));
}

TEST(Layout, NamesThePhysicalShape) {
  EXPECT_EQ(physical_shape(channels_layout, {2, 16, 3, 5}), (Shape{2, 2, 3, 5, 8}));
  EXPECT_EQ(physical_shape(batch_layout, {16, 5, 3, 3}), (Shape{2, 5, 3, 3, 8}));
  EXPECT_EQ(physical_shape(weights_layout, {16, 24, 3, 3}), (Shape{2, 3, 3, 3, 8, 8}));
  EXPECT_EQ(logical_shape(weights_layout, {2, 3, 3, 3, 8, 8}), (Shape{16, 24, 3, 3}));
  EXPECT_TRUE(fits(channels_layout, {1, 8}));
  EXPECT_FALSE(fits(channels_layout, {8}));
  EXPECT_FALSE(fits(channels_layout, {8, 12, 3, 3}));
}

TEST(Layout, ReadingAPlainTensorInPhysicalOrderIsTheInverseOfReadingInLogicalOrder) {
  for (const Layout& layout : {plain_layout, channels_layout, batch_layout, weights_layout}) {
    const Shape shape = {16, 24, 2, 3};
    const auto to_physical = elements(physical_geometry(layout, dense(shape)));
    const auto to_logical = places(layout, shape);
    std::vector<int64_t> counted(to_physical.size());
    std::iota(counted.begin(), counted.end(), 0);
    std::vector<int64_t> back;
    for (const int64_t place : to_logical) back.push_back(to_physical[static_cast<size_t>(place)]);
    EXPECT_EQ(back, counted) << to_string(layout);
  }
}

// The view's elements, read through the physical view, are those the plain view names.
void expect_view(const Layout& layout, const Shape& shape, const Geometry& view) {
  const auto physical = physical_view(layout, shape, view);
  ASSERT_TRUE(physical) << to_string(layout);
  const auto place = places(layout, shape);
  const auto wanted = elements(physical_geometry(layout, view));
  const auto got = elements(*physical);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], place[static_cast<size_t>(wanted[i])]) << i;
  }
}

TEST(Layout, ReshapesThatLeaveTheCutAloneNeedNoConversion) {
  expect_view(batch_layout, {16, 12, 3, 3}, dense({16, 108}));
  expect_view(channels_layout, {2, 16, 3, 5}, dense({2, 16, 15}));
  EXPECT_FALSE(physical_view(channels_layout, {2, 16, 3, 5}, dense({2, 240})));
  EXPECT_FALSE(physical_view(batch_layout, {16, 12, 3, 3}, dense({8, 216})));
}

TEST(Layout, SlicesBetweenGroupsNeedNoConversion) {
  const Strides strides = contiguous_strides(Shape{2, 24, 3, 5});
  expect_view(channels_layout, {2, 24, 3, 5}, {{2, 8, 3, 5}, strides, 8 * 15});
  expect_view(channels_layout, {2, 24, 3, 5}, {{1, 16, 2, 3}, strides, 360 + 8 * 15 + 5 + 1});
  EXPECT_FALSE(physical_view(channels_layout, {2, 24, 3, 5}, {{2, 8, 3, 5}, strides, 4 * 15}));
  EXPECT_FALSE(physical_view(channels_layout, {2, 24, 3, 5}, {{2, 4, 3, 5}, strides, 0}));
}

}  // namespace
}  // namespace tessera::cpu
