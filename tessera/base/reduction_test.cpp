#include "tessera/base/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tessera/base/half.h"

namespace tessera {
namespace {

template <typename T>
std::vector<T> combined(Reduction reduction, DType dtype, std::vector<T> a,
                        const std::vector<T>& b) {
  combine(reduction, dtype, reinterpret_cast<std::byte*>(a.data()),
          reinterpret_cast<const std::byte*>(b.data()), a.size());
  return a;
}

template <typename T>
void expect_arithmetic(DType dtype) {
  const std::vector<T> a = {5, 0, 7}, b = {3, 1, 7};
  EXPECT_EQ(combined(Reduction::sum, dtype, a, b), (std::vector<T>{8, 1, 14}));
  EXPECT_EQ(combined(Reduction::min, dtype, a, b), (std::vector<T>{3, 0, 7}));
  EXPECT_EQ(combined(Reduction::max, dtype, a, b), (std::vector<T>{5, 1, 7}));
  EXPECT_EQ(combined(Reduction::product, dtype, a, b), (std::vector<T>{15, 0, 49}));
}

TEST(Reduction, NumbersOfEveryType) {
  expect_arithmetic<float>(DType::f32);
  expect_arithmetic<double>(DType::f64);
  expect_arithmetic<int64_t>(DType::i64);
  expect_arithmetic<int32_t>(DType::i32);
  expect_arithmetic<int16_t>(DType::i16);
  expect_arithmetic<int8_t>(DType::i8);
  expect_arithmetic<uint8_t>(DType::u8);
}

TEST(Reduction, WholeNumbersWrapAround) {
  EXPECT_EQ(combined<int8_t>(Reduction::sum, DType::i8, {127}, {1})[0], -128);
  EXPECT_EQ(combined<uint8_t>(Reduction::product, DType::u8, {200}, {2})[0], 144);
  const int64_t greatest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(combined<int64_t>(Reduction::sum, DType::i64, {greatest}, {1})[0], -greatest - 1);
}

TEST(Reduction, BooleansAreOrAndAnd) {
  const auto together = [](Reduction reduction) {
    bool a[] = {false, true, true};
    const bool b[] = {false, false, true};
    combine(reduction, DType::boolean, reinterpret_cast<std::byte*>(a),
            reinterpret_cast<const std::byte*>(b), 3);
    return std::vector<bool>(a, a + 3);
  };
  EXPECT_EQ(together(Reduction::sum), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(together(Reduction::max), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(together(Reduction::min), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(together(Reduction::product), (std::vector<bool>{false, false, true}));
}

TEST(Reduction, HalvesAreRoundedOnce) {
  const std::vector<Half> a(600, to_half(2048)), b(600, to_half(3));
  EXPECT_EQ(combined(Reduction::sum, DType::f16, a, b), std::vector<Half>(600, to_half(2052)));
  EXPECT_EQ(combined(Reduction::min, DType::f16, a, b), b);
}

// 8 bits of fraction: 256 + 1 lies between two of them, and goes to the even one.
TEST(Reduction, ShortFloatsToo) {
  const auto shortened = [](float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  };
  EXPECT_EQ(combined<uint16_t>(Reduction::sum, DType::bf16, {shortened(256)}, {shortened(1)})[0],
            shortened(256));
  EXPECT_EQ(combined<uint16_t>(Reduction::sum, DType::bf16, {shortened(256)}, {shortened(3)})[0],
            shortened(260));
}

TEST(Reduction, ANaNStaysOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto reduction :
       {Reduction::sum, Reduction::min, Reduction::max, Reduction::product}) {
    for (const float value : combined<float>(reduction, DType::f32, {nan, 1}, {1, nan})) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace tessera
