#include "tessera/kernels/special_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace tessera {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double euler = 0.57721566490153286;

TEST(SpecialMath, DigammaKnowsItsPoles) {
  EXPECT_NEAR(digamma(1), -euler, 1e-14);
  EXPECT_NEAR(digamma(0.5), -euler - 2 * std::log(2.0), 1e-13);
  EXPECT_NEAR(digamma(-0.5), 2 - euler - 2 * std::log(2.0), 1e-12);
  EXPECT_EQ(digamma(0.0), -infinity);
  EXPECT_EQ(digamma(-0.0), infinity);
  EXPECT_TRUE(std::isnan(digamma(-3)));
}

TEST(SpecialMath, PolygammaOfOneIsASumOfPowers) {
  constexpr double pi = std::numbers::pi;
  EXPECT_NEAR(polygamma(1, 1), pi * pi / 6, 1e-13);
  EXPECT_NEAR(polygamma(2, 1), -2 * 1.2020569031595942, 1e-12);
  EXPECT_NEAR(polygamma(1, -0.5), pi * pi / 2 + 4, 1e-11);
  EXPECT_EQ(polygamma(1, 0), infinity);
}

TEST(SpecialMath, InversesInvert) {
  for (const double x : {-3.0, -0.7, -1e-9, 0.0, 0.3, 0.49, 0.51, 2.5}) {
    EXPECT_NEAR(inverse_erf(std::erf(x)), x, 1e-12) << x;
  }
  EXPECT_EQ(inverse_erf(1), infinity);
  EXPECT_EQ(inverse_erf(-1), -infinity);
  EXPECT_TRUE(std::isnan(inverse_erf(1.5)));
  for (const double x : {-38.0, -20.0, -5.0, -0.1, 0.0, 1.0, 6.0}) {
    EXPECT_NEAR(normal_quantile(std::exp(log_normal_below(x))), x, 1e-6) << x;
  }
}

TEST(SpecialMath, TailsJoin) {
  for (const double x : {19.999, 20.001}) {
    EXPECT_NEAR(scaled_erfc(x) * x * std::sqrt(std::numbers::pi), 1 - 0.5 / (x * x), 1e-5);
    EXPECT_NEAR(bessel_i(0, x, true) * std::sqrt(2 * std::numbers::pi * x), 1 + 0.125 / x, 1e-3);
  }
  EXPECT_NEAR(bessel_i(0, 19.9999, true) / bessel_i(0, 20.0001, true), 1, 1e-5);
  EXPECT_NEAR(bessel_i(1, -1, false), -0.56515910399248503, 1e-15);
}

}  // namespace
}  // namespace tessera
