#include "tessera/base/half.h"

#include <cstddef>

#include "tessera/base/error.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace tessera {

void widen(std::span<const Half> from, std::span<float> to) {
  TESSERA_INVARIANT(from.size() == to.size(), "{} elements for {}", from.size(), to.size());
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= from.size(); i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&from[i]));
    _mm256_storeu_ps(&to[i], _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < from.size(); ++i) to[i] = to_float(from[i]);
}

void narrow(std::span<const float> from, std::span<Half> to) {
  TESSERA_INVARIANT(from.size() == to.size(), "{} elements for {}", from.size(), to.size());
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= from.size(); i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(&from[i]), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&to[i]), halves);
  }
#endif
  for (; i < from.size(); ++i) to[i] = to_half(from[i]);
}

}  // namespace tessera
