#include "tessera/kernels/special_math.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace tessera {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double pi = std::numbers::pi;

// Bernoulli numbers B2, B4, ... for the tails of sums.
constexpr double bernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,        -1.0 / 30,    5.0 / 66,
                                -691.0 / 2730, 7.0 / 6,   -3617.0 / 510.0, 43867.0 / 798};

bool is_whole(double x) { return x == std::floor(x); }

// For x > 0: upwards by the recurrence until the asymptotic series is exact.
double positive_digamma(double x) {
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  if (x == infinity) return infinity;
  const double square = 1 / (x * x);
  double power = square;
  sum += std::log(x) - 0.5 / x;
  for (int k = 0; k < 8; ++k) {
    sum -= bernoulli[k] / (2 * (k + 1)) * power;
    power *= square;
  }
  return sum;
}

// exp(t^2) erfc(t) for large t, as the series in 1 / t^2 that diverges too late to matter.
double erfc_tail(double t) {
  const double z = 1 / (2 * t * t);
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 8; ++k) {
    term *= -(2 * k - 1) * z;
    sum += term;
  }
  return sum / (t * std::sqrt(pi));
}

constexpr double far_tail = 20;  // beyond it erfc_tail is exact, before it erfc does not underflow

}  // namespace

double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global variable
}

double digamma(double x) {
  if (x == 0) return std::copysign(infinity, -x);
  if (x > 0) return positive_digamma(x);
  if (std::isnan(x) || is_whole(x)) return nan;
  // Reflection; the tangent of the fraction alone stays exact for large x.
  const double fraction = x - std::trunc(x);
  return positive_digamma(1 - x) - pi / std::tan(pi * fraction);
}

double hurwitz_zeta(double s, double q) {
  if (s == 1) return infinity;
  if (s < 1 || std::isnan(s) || std::isnan(q)) return nan;
  if (q <= 0) {
    if (is_whole(q)) return infinity;
    if (!is_whole(s) || q < -1e6) return nan;  // too many terms away from the poles
  }
  if (q == infinity) return 0;
  double sum = 0;
  for (int k = 0; k < 10 || q < 10; ++k, ++q) {
    sum += std::pow(q, -s);
  }
  // Euler's and Maclaurin's formula for the rest.
  const double power = std::pow(q, -s);
  sum += power * q / (s - 1) + 0.5 * power;
  double factor = s;
  double decay = power / q;
  double factorial = 2;
  for (int k = 0; k < 9; ++k) {
    sum += bernoulli[k] / factorial * factor * decay;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
    decay /= q * q;
    factorial *= (2.0 * k + 3) * (2.0 * k + 4);
  }
  return sum;
}

double polygamma(int64_t n, double x) {
  if (n == 0) return digamma(x);
  if (n == 1 && x < 0.5 && !is_whole(x)) {
    const double sine = std::sin(pi * (x - std::trunc(x)));
    return pi * pi / (sine * sine) - hurwitz_zeta(2, 1 - x);
  }
  const auto order = static_cast<double>(n);
  const double sign = n % 2 == 0 ? -1 : 1;
  return sign * std::exp(log_gamma(order + 1)) * hurwitz_zeta(order + 1, x);
}

double scaled_erfc(double x) {
  return x > far_tail ? erfc_tail(x) : std::exp(x * x) * std::erfc(x);
}

double log_normal_below(double x) {
  const double t = -x / std::numbers::sqrt2;
  if (t < -1) return std::log1p(-std::erfc(-t) / 2);
  if (t < far_tail) return std::log(std::erfc(t) / 2);
  return std::log(erfc_tail(t) / 2) - t * t;
}

double normal_quantile(double p) {
  if (p == 0) return -infinity;
  if (p == 1) return infinity;
  if (!(p > 0 && p < 1)) return nan;
  if (p > 0.5) return -normal_quantile(1 - p);
  // Newton's method on the logarithm, which is concave: it comes from one side and cannot jump.
  const double wanted = std::log(p);
  double x = p > 0.1 ? 0 : -std::sqrt(-2 * wanted);
  for (int round = 0; round < 30; ++round) {
    const double below = log_normal_below(x);
    const double log_density = -0.5 * x * x - 0.5 * std::log(2 * pi);
    const double step = (below - wanted) * std::exp(below - log_density);
    x -= step;
    if (std::abs(step) <= 1e-15 * std::abs(x)) break;
  }
  return x;
}

double inverse_erf(double x) {
  if (std::abs(x) >= 0.5) {
    return std::copysign(normal_quantile((1 - std::abs(x)) / 2) / -std::numbers::sqrt2, x);
  }
  double y = x * std::sqrt(pi) / 2;
  for (int round = 0; round < 8; ++round) {
    y -= (std::erf(y) - x) * std::sqrt(pi) / 2 * std::exp(y * y);
  }
  return y;
}

double bessel_i(int order, double x, bool scaled) {
  const double size = std::abs(x);
  const double sign = order == 1 && x < 0 ? -1 : 1;
  if (size == infinity) return scaled ? 0 : sign * infinity;
  if (size < 20) {
    // The power series: all terms are positive, nothing cancels.
    double term = order == 1 ? size / 2 : 1;
    double sum = term;
    for (int k = 1; term > 1e-18 * sum; ++k) {
      term *= size * size / (4.0 * k * (k + order));
      sum += term;
    }
    return sign * (scaled ? sum * std::exp(-size) : sum);
  }
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 20; ++k) {
    const double odd = 2.0 * k - 1;
    term *= (odd * odd - 4.0 * order * order) / (8 * size * k);
    sum += term;
  }
  const double scaled_value = sum / std::sqrt(2 * pi * size);
  return sign * (scaled ? scaled_value : scaled_value * std::exp(size));
}

}  // namespace tessera
