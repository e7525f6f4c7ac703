#include "tessera/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tessera/base/tensor_view.h"

namespace tessera {
namespace {

constexpr uint32_t half_count = 1U << 16;

bool is_nan(Half half) { return (half.bits & 0x7FFFU) > 0x7C00U; }

// What the bits mean, by the standard's own words.
double value_of(Half half) {
  const int exponent = half.bits >> 10 & 0x1F;
  const double fraction = half.bits & 0x3FF;
  const double sign = half.bits & 0x8000U ? -1 : 1;
  if (exponent == 0x1F) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// The nearest number of half precision, as a double: exact, since a double has room for all of it.
double slowly_rounded(double value) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                   : rounded;
}

void expect_rounded(float value) {
  const Half half = to_half(value);
  if (std::isnan(value)) {
    EXPECT_TRUE(is_nan(half) && std::isnan(rounded_to_half(value))) << value;
    return;
  }
  EXPECT_EQ(std::bit_cast<uint32_t>(rounded_to_half(value)),
            std::bit_cast<uint32_t>(to_float(half)))
      << value;
  const double wanted = slowly_rounded(static_cast<double>(value));
  EXPECT_EQ(value_of(half), wanted) << value;
  EXPECT_EQ(half.bits >> 15 != 0, std::signbit(value)) << value;
}

TEST(Half, EveryOneIsTheFloatThatItsBitsMean) {
  for (uint32_t bits = 0; bits < half_count; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float wide = to_float(half);
    ASSERT_EQ(std::signbit(wide), bits >> 15 != 0) << bits;
    if (is_nan(half)) {
      // Quiet, with the payload at the upper end of the fraction.
      ASSERT_EQ(std::bit_cast<uint32_t>(wide) & 0x7FFFFFFFU, 0x7FC00000U | (bits & 0x3FFU) << 13);
      ASSERT_EQ(to_half(wide).bits, bits | 0x200U);
    } else {
      ASSERT_EQ(static_cast<double>(wide), value_of(half)) << bits;
      ASSERT_EQ(to_half(wide), half) << bits;
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    const float low = to_float({static_cast<uint16_t>(bits)});
    // Past the largest one, what would be next if the exponents went on.
    const float high = bits + 1 == 0x7C00U ? 65536.0F : to_float({static_cast<uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;
    for (const float value : {middle, std::nextafter(middle, low), std::nextafter(middle, high),
                              std::nextafter(low, high), std::nextafter(high, low)}) {
      expect_rounded(value);
      expect_rounded(-value);
    }
  }
}

TEST(Half, TheNextBelowIsTheNearestSmallerOne) {
  static_assert(next_below({0x7C00}) == to_half(65504));
  static_assert(next_below({0}) == to_half(-0x1p-24F) && next_below({0x8000}) == next_below({0}));
  for (uint32_t bits = 0; bits < half_count; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if (!std::isfinite(value) || value == 0 || value == -65504) continue;
    const float below = to_float(next_below(half));
    ASSERT_LT(below, value);
    ASSERT_EQ(to_half(std::nextafter((below + value) / 2, value)), half) << "one lies between";
  }
}

TEST(Half, RoundsAnyFloat) {
  std::mt19937 random(5);
  for (int i = 0; i < 1'000'000; ++i) {
    expect_rounded(std::bit_cast<float>(static_cast<uint32_t>(random())));
    // With an exponent near those of half precision, which few of the above have.
    const uint32_t exponent = 127U - 27U + static_cast<uint32_t>(random()) % 45U;
    const auto word = static_cast<uint32_t>(random());
    expect_rounded(std::bit_cast<float>((word & 0x807FFFFFU) | exponent << 23));
  }
}

TEST(Half, KeepsWhatFitsOfANan) {
  const Half signalling = to_half(std::bit_cast<float>(0xFF802001U));
  EXPECT_EQ(signalling.bits, 0xFE01U);  // the sign, a quiet one, the upper ten bits of the payload
}

TEST(Half, ManyAtOnceAreTheSameBits) {
  std::vector<Half> halves(half_count + 3);  // no multiple of a vector
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  widen(halves, wide);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(to_float(halves[i])));
  }
  std::mt19937 random(6);
  for (float& value : wide) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<Half> narrowed(wide.size());
  narrow(wide, narrowed);
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrowed[i], to_half(wide[i])) << wide[i];
}

TEST(Half, IsTheElementOfF16) {
  EXPECT_TRUE(are_elements_of<const Half>(DType::f16));
  EXPECT_FALSE(are_elements_of<Half>(DType::bf16));
  EXPECT_FALSE(are_elements_of<int16_t>(DType::f16));
}

}  // namespace
}  // namespace tessera
