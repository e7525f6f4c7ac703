// Arithmetic on single elements where PyTorch's meaning is not plain C++: integers wrap around, NaN
// wins comparisons, division and remainder have their signs.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/base/error.h"

namespace tessera {

// a + alpha * b with one rounding, as PyTorch's vector kernels do it: the product of two floats is
// exact in double. (Rounding twice differs from once in about one case in 2^29.)
inline float multiply_add(float b, float alpha, float a) {
  return static_cast<float>(static_cast<double>(a) +
                            static_cast<double>(b) * static_cast<double>(alpha));
}

// Signed overflow wraps; on bool, + is `or` and * is `and`.
template <typename T>
T wrapping(T a, T b, auto f) {
  if constexpr (std::is_same_v<T, float>) {
    return f(a, b);
  } else if constexpr (std::is_same_v<T, bool>) {
    return f(static_cast<uint32_t>(a), static_cast<uint32_t>(b)) != 0;
  } else {
    return static_cast<T>(f(static_cast<uint32_t>(a), static_cast<uint32_t>(b)));
  }
}
template <typename T>
T add_wrapping(T a, T b) {
  return wrapping(a, b, [](auto x, auto y) { return x + y; });
}
template <typename T>
T subtract_wrapping(T a, T b) {
  return wrapping(a, b, [](auto x, auto y) { return x - y; });
}
template <typename T>
T multiply_wrapping(T a, T b) {
  return wrapping(a, b, [](auto x, auto y) { return x * y; });
}
template <typename T>
T negate(T a) {
  return subtract_wrapping(T{}, a);
}
template <>
inline float negate(float a) {
  return -a;
}

template <typename T>
T absolute(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::abs(a);
  return a < T{} ? negate(a) : a;
}

template <typename T>
T sign_of(T a) {
  if constexpr (std::is_same_v<T, bool>) return a;
  return static_cast<T>((a > T{}) - (a < T{}));
}

template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return x != x;
  return false;
}
template <typename T>
T maximum(T a, T b) {
  return is_nan(a) || a > b ? a : b;
}
template <typename T>
T minimum(T a, T b) {
  return is_nan(a) || a < b ? a : b;
}

template <typename T>
void check_divisor(T b) {
  check(b != 0, "integer division by zero");
}

// Towards zero.
template <typename T>
T divide_truncating(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::trunc(a / b);
  } else {
    check_divisor(b);
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return negate(a);  // the lowest number wraps
    return static_cast<T>(a / b);
  }
}

// Towards minus infinity. For floats from the remainder, so that it fits remainder() exactly.
template <typename T>
T divide_flooring(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == 0) return a / b;
    const T mod = std::fmod(a, b);
    T quotient = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{0}, a / b);
    const T floored = std::floor(quotient);
    return quotient - floored > T{0.5} ? floored + 1 : floored;
  } else {
    const T quotient = divide_truncating(a, b);
    const bool exact = multiply_wrapping(quotient, b) == a;
    return !exact && (a < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
  }
}

// With the sign of a.
template <typename T>
T remainder_truncating(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    check_divisor(b);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
}

// With the sign of b.
template <typename T>
T remainder_flooring(T a, T b) {
  const T mod = remainder_truncating(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? static_cast<T>(mod + b) : mod;
}

template <typename T>
T power(T base, T exponent) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::pow(base, exponent);
  } else {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == static_cast<T>(-1)) return exponent % 2 == 0 ? T{1} : static_cast<T>(-1);
      return 0;
    }
    T result = 1;
    for (auto left = static_cast<uint32_t>(exponent); left > 0; left >>= 1) {
      if (left & 1) result = multiply_wrapping(result, base);
      base = multiply_wrapping(base, base);
    }
    return result;
  }
}

template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // What does not fit becomes the lowest number, as x86 does it.
    const bool fits = x >= From{-2147483648.0} && x < From{2147483648.0};
    return static_cast<To>(fits ? static_cast<int32_t>(x) : std::numeric_limits<int32_t>::min());
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tessera
