// Functions of single floats without branches or calls, so that loops over them become vector code
// for whatever the surrounding function is compiled for (with -fno-trapping-math). Right to about 2
// units in the last place; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::kernels {

// exp(x) = scale * (1 + rest) with scale a power of two. For |x| < 87.
struct SplitExp {
  float scale, rest;
};

[[gnu::always_inline]] inline SplitExp split_exp(float x) {
  constexpr float round = 12582912.0F;  // 1.5 * 2^23: adding it leaves no bits for fractions
  const float n = (x * 1.44269504F + round) - round;
  const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;  // ln 2 in two parts
  // exp(r) - 1 for |r| < 0.35.
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r * r + r;
  return {std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23), p};
}

[[gnu::always_inline]] inline float clamp_between(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// From 1e-38 to 1e38, never 0 or infinite.
[[gnu::always_inline]] inline float exp_of(float x) {
  const SplitExp e = split_exp(clamp_between(x, -87.0F, 87.0F));
  return e.scale + e.scale * e.rest;
}

// Of positive numbers that are neither infinite nor denormal.
[[gnu::always_inline]] inline float log_of(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - std::bit_cast<int32_t>(0.75F)) >> 23;
  const auto m = std::bit_cast<float>(bits - (exponent << 23));  // in [0.75, 1.5)
  const float z = (m - 1) / (m + 1), zz = z * z;
  float p = 2.0F / 9;
  p = p * zz + 2.0F / 7;
  p = p * zz + 2.0F / 5;
  p = p * zz + 2.0F / 3;
  p = p * zz + 2;
  const float nan_if_nan = x - x;  // what is done to its bits would make a number of it
  return static_cast<float>(exponent) * 0.693147181F + p * z + nan_if_nan;
}

[[gnu::always_inline]] inline float sigmoid_of(float x) { return 1.0F / (1.0F + exp_of(-x)); }

// From exp(2x) - 1, which keeps the digits of a small x.
[[gnu::always_inline]] inline float tanh_of(float x) {
  const SplitExp e = split_exp(2 * clamp_between(x, -10.0F, 10.0F));
  const float m = e.scale * e.rest + (e.scale - 1);
  return m / (m + 2);
}

}  // namespace tessera::kernels
