// Sums over neighbouring elements, eight at a time. Blocks are summed in single precision, four
// chains beside each other, and joined in double precision: long rows lose nothing.
#pragma once

#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/kernels/x86/avx2.h"

namespace tessera::cpu::avx2 {

constexpr int64_t sum_block = 2048;  // elements

// Four chains: additions take four cycles.
struct Chains {
  __m256 v[4];
};

TESSERA_AVX2 inline void clear(Chains& chains) {
  for (auto& v : chains.v) v = _mm256_setzero_ps();
}

TESSERA_AVX2 inline double total(const Chains& chains) {
  const __m256 v = _mm256_add_ps(_mm256_add_ps(chains.v[0], chains.v[1]),
                                 _mm256_add_ps(chains.v[2], chains.v[3]));
  return sum_of_lanes(v);
}

// Zero in lanes that the mask leaves out.
TESSERA_AVX2 inline __m256 distances(const float* x, __m256i mask, __m256 center) {
  return _mm256_and_ps(_mm256_sub_ps(_mm256_maskload_ps(x, mask), center),
                       _mm256_castsi256_ps(mask));
}

// Of the distances from `center`.
TESSERA_AVX2 inline double sum_of(const float* x, int64_t size, float center = 0) {
  const __m256 middle = _mm256_set1_ps(center);
  double sum = 0;
  for (int64_t begin = 0; begin < size; begin += sum_block) {
    const int64_t end = std::min(begin + sum_block, size);
    Chains chains;
    clear(chains);
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      for (int k = 0; k < 4; ++k) {
        const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i + k * lanes), middle);
        chains.v[k] = _mm256_add_ps(chains.v[k], distance);
      }
    }
    for (; i < end; i += lanes) {
      chains.v[0] = _mm256_add_ps(chains.v[0], distances(x + i, mask_of(end - i), middle));
    }
    sum += total(chains);
  }
  return sum;
}

// Of the squared distances from `center`.
TESSERA_AVX2 inline double sum_of_squares(const float* x, int64_t size, float center) {
  const __m256 middle = _mm256_set1_ps(center);
  double sum = 0;
  for (int64_t begin = 0; begin < size; begin += sum_block) {
    const int64_t end = std::min(begin + sum_block, size);
    Chains chains;
    clear(chains);
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      for (int k = 0; k < 4; ++k) {
        const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i + k * lanes), middle);
        chains.v[k] = _mm256_fmadd_ps(distance, distance, chains.v[k]);
      }
    }
    for (; i < end; i += lanes) {
      const __m256 distance = distances(x + i, mask_of(end - i), middle);
      chains.v[0] = _mm256_fmadd_ps(distance, distance, chains.v[0]);
    }
    sum += total(chains);
  }
  return sum;
}

// Where sums for a mean are counted from: an element of the row. Where all are nearly the same,
// their distances from the mean are divided by next to nothing, and must not be rounding errors of
// it.
inline float origin_of_sums(float first) { return std::isfinite(first) ? first : 0; }

struct RowMoments {
  float mean = 0;
  double variance = 0;
};

TESSERA_AVX2 inline RowMoments moments_of(const float* x, int64_t size) {
  const auto count = static_cast<double>(size);
  const float first = origin_of_sums(x[0]);
  const double mean = first + sum_of(x, size, first) / count;
  const auto center = static_cast<float>(mean);
  // Around the mean as a float: what it was rounded by is taken off again.
  const double off = mean - double{center};
  // In this order of arguments NaN stays NaN.
  return {center, std::max(sum_of_squares(x, size, center) / count - off * off, 0.0)};
}

// Of a gradient, and of its products with distances from a center.
struct GradSums {
  double sum = 0, dot = 0;
};

// With weights: of the gradient times them.
template <bool weighted>
TESSERA_AVX2 inline GradSums grad_sums(const float* g, const float* x, const float* weight,
                                       int64_t size, float center) {
  const __m256 middle = _mm256_set1_ps(center);
  GradSums result;
  for (int64_t begin = 0; begin < size; begin += sum_block) {
    const int64_t end = std::min(begin + sum_block, size);
    Chains sums, dots;
    clear(sums);
    clear(dots);
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      for (int k = 0; k < 4; ++k) {
        __m256 grad = _mm256_loadu_ps(g + i + k * lanes);
        if (weighted) grad = _mm256_mul_ps(grad, _mm256_loadu_ps(weight + i + k * lanes));
        sums.v[k] = _mm256_add_ps(sums.v[k], grad);
        const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x + i + k * lanes), middle);
        dots.v[k] = _mm256_fmadd_ps(grad, distance, dots.v[k]);
      }
    }
    for (; i < end; i += lanes) {
      const __m256i mask = mask_of(end - i);
      __m256 grad = _mm256_maskload_ps(g + i, mask);
      if (weighted) grad = _mm256_mul_ps(grad, _mm256_maskload_ps(weight + i, mask));
      sums.v[0] = _mm256_add_ps(sums.v[0], grad);
      const __m256 distance = _mm256_sub_ps(_mm256_maskload_ps(x + i, mask), middle);
      dots.v[0] = _mm256_fmadd_ps(grad, distance, dots.v[0]);
    }
    result.sum += total(sums);
    result.dot += total(dots);
  }
  return result;
}

}  // namespace tessera::cpu::avx2
