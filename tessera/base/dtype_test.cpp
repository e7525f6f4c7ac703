#include "tessera/base/dtype.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::i16, DType::i8,
                            DType::u8, DType::boolean, DType::i64, DType::f64}) {
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_named("float"), std::nullopt);
  EXPECT_EQ(name_of(DType::boolean), "bool");
}

TEST(DType, SizesAndSets) {
  EXPECT_EQ(size_of(DType::f32), 4U);
  EXPECT_EQ(size_of(DType::f16), 2U);
  EXPECT_EQ(size_of(DType::boolean), 1U);
  EXPECT_EQ(size_of(DType::i64), 8U);
  EXPECT_TRUE(is_floating(DType::bf16));
  EXPECT_FALSE(is_floating(DType::i32));
  EXPECT_TRUE(is_integral(DType::u8));
  EXPECT_FALSE(is_integral(DType::boolean));
}

TEST(DType, SixtyFourBitsBecomeThirtyTwo) {
  EXPECT_EQ(narrowed(DType::i64), DType::i32);
  EXPECT_EQ(narrowed(DType::f64), DType::f32);
  EXPECT_EQ(narrowed(DType::f16), DType::f16);
  EXPECT_EQ(narrowed(DType::u8), DType::u8);
}

}  // namespace
}  // namespace tessera
