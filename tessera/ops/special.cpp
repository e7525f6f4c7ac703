// Special functions of mathematics, and what PyTorch has of rarer arithmetic: signs, limits, shifts
// and divisors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "tessera/kernels/scalar_math.h"
#include "tessera/kernels/special_math.h"
#include "tessera/ops/families.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/rows.h"

namespace tessera::families {
namespace {

using namespace row_parts;
using namespace rows;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// A function of double as a function of float.
template <double (*f)(double)>
constexpr auto in_double = [](float x) { return static_cast<float>(f(static_cast<double>(x))); };

template <int order, bool scaled>
constexpr auto bessel =
    [](float x) { return static_cast<float>(bessel_i(order, static_cast<double>(x), scaled)); };

constexpr auto derivative_of_digamma = [](const Attrs& attrs) {
  return [n = attrs.integer("n")](float x) {
    return static_cast<float>(polygamma(n, static_cast<double>(x)));
  };
};

std::vector<TensorType> infer_polygamma(const OpView& op) {
  check(op.attrs().integer("n") >= 0, ErrorKind::value, "polygamma needs n of 0 or more, got {}",
        op.attrs().integer("n"));
  return infer_map<Types::floats, Result::same>(op);
}

float clamped_share(float x, float eps) { return x < eps ? eps : x > 1 - eps ? 1 - eps : x; }

constexpr auto logit = [](const Attrs& attrs) {
  const bool clamps = attrs.has("eps") && attrs.number("eps") >= 0;
  return [clamps, eps = clamps ? static_cast<float>(attrs.number("eps")) : 0.0F](float x) {
    const float share = clamps ? clamped_share(x, eps) : x;
    return std::log(share / (1 - share));
  };
};

constexpr auto logit_gradient = [](const Attrs& attrs) {
  const bool clamps = attrs.has("eps") && attrs.number("eps") >= 0;
  const float low = clamps ? static_cast<float>(attrs.number("eps")) : 0.0F;
  return [low, outside = clamps ? 0.0F : nan](float g, float x) {
    if (x < low || x > 1 - low) return outside;
    return g / (x * (1 - x));
  };
};

constexpr auto sinc = [](float x) {
  if (x == 0) return 1.0F;
  const float angle = std::numbers::pi_v<float> * x;
  return std::sin(angle) / angle;
};

constexpr auto entropy = [](float x) {
  if (is_nan(x)) return x;
  if (x > 0) return -x * std::log(x);
  return x == 0 ? 0.0F : -infinity;
};

// log(exp(a) + exp(b)) without overflow.
constexpr auto log_sum = [](float a, float b) {
  if (std::isinf(a) && a == b) return a;
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
};

constexpr auto log_sum_of_twos = [](float a, float b) {
  constexpr auto log2_e = std::numbers::log2e_v<float>;
  if (std::isinf(a) && a == b) return a;
  return std::max(a, b) + std::log1p(std::exp2(-std::abs(a - b))) * log2_e;
};

constexpr auto x_log1p = [](float a, float b) {
  if (is_nan(b)) return b;
  return a == 0 ? 0.0F : a * std::log1p(b);
};

// Differs from maximum and minimum in NaN, which loses here.
template <typename T>
T larger_number(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return std::max(a, b);
}
template <typename T>
T smaller_number(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return std::min(a, b);
}

// Short types as PyTorch: the smallest number has no absolute value and stays negative. Longer
// ones stand for 64 bits as well, where it has.
template <typename T>
T common_divisor(T a, T b) {
  if constexpr (sizeof(T) >= sizeof(int32_t)) {
    return static_cast<T>(
        std::gcd(std::abs(static_cast<int64_t>(a)), std::abs(static_cast<int64_t>(b))));
  } else {
    a = static_cast<T>(std::abs(a));
    b = static_cast<T>(std::abs(b));
    while (a != 0) b = std::exchange(a, static_cast<T>(b % a));
    return b;
  }
}
template <typename T>
T common_multiple(T a, T b) {
  const T divisor = common_divisor(a, b);
  if (divisor == 0) return T{};
  if constexpr (sizeof(T) >= sizeof(int32_t)) {
    return absolute(multiply_wrapping(static_cast<T>(a / divisor), b));
  } else {
    return static_cast<T>(std::abs(a / divisor * b));  // in 32 bits
  }
}

template <typename T>
T step_at_zero(T x, T at_zero) {
  return x == T{} ? at_zero : static_cast<T>(x > T{});
}

constexpr auto angle = [](float x) {
  if (is_nan(x)) return x;
  return x < 0 ? std::numbers::pi_v<float> : 0.0F;
};

std::vector<OpDef> make_rows() {
  using enum Types;
  constexpr Result boolean = Result::boolean;
  constexpr Domain inside{-0.95, 0.95}, share{0.05, 0.95}, positive{0.05, 6}, whole{-9, 9},
      wide{-30, 30};
  const AttrSchema eps = {maybe(number("eps"))};
  const Attrs sample_eps = {{"eps", 0.2}};
  constexpr auto degrees = static_cast<float>(180 / std::numbers::pi);
  constexpr auto radians = static_cast<float>(std::numbers::pi / 180);

  return {
      unary<floats, 60, in_double<log_gamma>>("lgamma", "logarithm of |gamma(x)|", {-3.6, 8}),
      unary<floats, 60, in_double<digamma>>("digamma", "derivative of lgamma", {-3.6, 8}),
      map_row<floats, 80, 1, derivative_of_digamma>({.name = "polygamma",
                                                     .operands = "self",
                                                     .doc = "n-th derivative of digamma",
                                                     .attrs = {integer("n", 1)},
                                                     .domains = {positive},
                                                     .sample_attrs = {{"n", attr(2)}},
                                                     .aten = {{"polygamma", "self | n"}},
                                                     .infer = infer_polygamma}),
      unary<floats, 80, in_double<inverse_erf>>("erfinv", "inverse of erf", inside),
      spelled(unary<floats, 40, in_double<scaled_erfc>>("erfcx", "exp(x * x) * erfc(x)"),
              {{"special_erfcx", "self"}}),
      spelled(unary<floats, 40, in_double<log_normal_below>>(
                  "log_ndtr", "logarithm of the normal distribution up to x", {-9, 9}),
              {{"special_log_ndtr", "self"}}),
      spelled(unary<floats, 80, in_double<normal_quantile>>(
                  "ndtri", "inverse of the normal distribution", share),
              {{"special_ndtri", "self"}}),
      unary<floats, 60, bessel<0, false>>("i0", "modified Bessel function of order 0", wide),
      spelled(unary<floats, 60, bessel<0, true>>("i0e", "i0(x) * exp(-|x|)", wide),
              {{"special_i0e", "self"}}),
      spelled(
          unary<floats, 60, bessel<1, false>>("i1", "modified Bessel function of order 1", wide),
          {{"special_i1", "self"}}),
      spelled(unary<floats, 60, bessel<1, true>>("i1e", "i1(x) * exp(-|x|)", wide),
              {{"special_i1e", "self"}}),
      unary<floats, 22, sinc>("sinc", "sin(pi x) / (pi x), 1 at 0", {0.3, 3}),
      spelled(unary<floats, 22, entropy>("entr", "-x * log(x)", positive),
              {{"special_entr", "self"}}),
      map_row<floats, 24, 1, logit>({.name = "logit",
                                     .operands = "self",
                                     .doc = "log(x / (1 - x)), x brought between eps and 1 - eps",
                                     .attrs = eps,
                                     .domains = {share},
                                     .sample_attrs = sample_eps}),
      map_row<floats, 6, 2, logit_gradient>({.name = "logit_backward",
                                             .operands = "grad_output, self",
                                             .doc = "gradient of logit",
                                             .attrs = eps,
                                             .domains = {{}, share},
                                             .sample_attrs = sample_eps}),
      unary<floats, 1, [](float x) { return x * radians; }>("deg2rad", "degrees as radians", wide),
      unary<floats, 1, [](float x) { return x * degrees; }>("rad2deg", "radians as degrees"),
      unary<floats, 1, angle>("angle", "0, or pi where x is below 0"),
      unary<all, 1, [](auto x) { return !is_nan(x) && static_cast<double>(x) == infinity; },
            boolean>("isposinf", "whether x is plus infinity"),
      unary<all, 1, [](auto x) { return !is_nan(x) && static_cast<double>(x) == -infinity; },
            boolean>("isneginf", "whether x is minus infinity"),

      binary<floats, 45, log_sum>("logaddexp", "log(exp(self) + exp(other))", {wide}),
      binary<floats, 45, log_sum_of_twos>("logaddexp2", "log2(2^self + 2^other)", {wide}),
      spelled(binary<floats, 25, x_log1p>("xlog1py", "self * log1p(other), 0 where self is 0",
                                          {{}, positive}),
              {{"special_xlog1py", "self, other"},
               {"special_xlog1py.self_scalar", "self, other"},
               {"special_xlog1py.other_scalar", "self, other"}}),
      with_scalar(binary<floats, 1, [](float a, float b) { return std::copysign(a, b); }>(
          "copysign", "|self| with the sign of other")),
      binary<floats, 1, [](float a, float b) { return std::nextafter(a, b); }>(
          "nextafter", "the float next to self towards other"),
      binary<all, 1, [](auto a, auto b) { return larger_number(a, b); }>("fmax",
                                                                         "the larger; NaN loses"),
      binary<all, 1, [](auto a, auto b) { return smaller_number(a, b); }>("fmin",
                                                                          "the smaller; NaN loses"),
      spelled(binary<all, 2, [](auto a, auto b) { return step_at_zero(a, b); }>(
                  "heaviside", "0 below 0, 1 above, other at 0"),
              {{"heaviside", "self, values"}}),
      binary<integers, 20,
             []<typename T>(T a, T b) -> T {
               if constexpr (std::is_same_v<T, bool>)
                 return a || b;
               else
                 return common_divisor(a, b);
             }>("gcd", "greatest common divisor", {whole}),
      binary<integers, 22,
             []<typename T>(T a, T b) -> T {
               if constexpr (std::is_same_v<T, bool>)
                 return a && b;
               else
                 return common_multiple(a, b);
             }>("lcm", "least common multiple", {whole}),
  };
}

}  // namespace

std::span<const OpDef> special() {
  static const std::vector<OpDef> rows = make_rows();
  return rows;
}

}  // namespace tessera::families
