#include "tessera/base/shape.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(Shape, CountsElementsAndBytes) {
  EXPECT_EQ(numel(Shape{}), 1);
  EXPECT_EQ(numel(Shape{2, 3, 4}), 24);
  EXPECT_EQ(numel(Shape{2, 0, 4}), 0);
  EXPECT_EQ(bytes({DType::i16, {3, 5}}), 30);
}

TEST(Shape, RowMajorStrides) {
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides(Shape{}), Strides{});
  EXPECT_TRUE(is_contiguous(Shape{2, 3}, Strides{3, 1}));
  EXPECT_FALSE(is_contiguous(Shape{2, 3}, Strides{1, 2}));
  EXPECT_TRUE(is_contiguous(Shape{1, 3}, Strides{77, 1})) << "a size-1 stride does not matter";
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast(Shape{4, 1, 5}, Shape{3, 1}), (Shape{4, 3, 5}));
  EXPECT_EQ(broadcast(Shape{}, Shape{2}), (Shape{2}));
  EXPECT_EQ(broadcast(Shape{1}, Shape{0}), (Shape{0}));
  EXPECT_THROW(broadcast(Shape{2, 3}, Shape{2}), Error);
}

TEST(Shape, BroadcastStridesRepeat) {
  EXPECT_EQ(broadcast_strides(Shape{3, 1}, Strides{1, 1}, Shape{4, 3, 5}), (Strides{0, 1, 0}));
  EXPECT_EQ(broadcast_strides(Shape{}, Strides{}, Shape{2, 2}), (Strides{0, 0}));
}

TEST(Shape, WrapsDimensions) {
  EXPECT_EQ(wrap_dim(-1, 3), 2);
  EXPECT_EQ(wrap_dim(0, 0), 0);
  EXPECT_EQ(wrap_dim(-1, 0), 0);
  EXPECT_THROW(wrap_dim(3, 3), Error);
  EXPECT_THROW(wrap_dim(-4, 3), Error);
  EXPECT_THROW(wrap_dim(1, 0), Error);
}

TEST(Shape, Prints) {
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(TensorType{DType::boolean, {2, 3}}), "bool[2,3]");
  EXPECT_EQ(to_string(TensorType{DType::f32, {}}), "f32[]");
}

}  // namespace
}  // namespace tessera
