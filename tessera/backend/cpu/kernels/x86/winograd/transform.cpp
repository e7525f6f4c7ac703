#include "tessera/backend/cpu/kernels/x86/winograd/transform.h"

#include <algorithm>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

using avx2::lanes;
constexpr float root_2 = 1.41421356237309504880F;
constexpr float root_half = 0.70710678118654752440F;

TESSERA_AVX2_INLINE __m256 all(float value) { return _mm256_set1_ps(value); }

// One line each way makes the map of a tile. F(4,3), with a^2 = 1/2 and b^2 = 2.
struct Lines4 {
  static constexpr int tile = 4, inputs = 6;

  TESSERA_AVX2_INLINE static void input(const __m256* d, __m256* v) {
    const __m256 even_a = _mm256_fnmadd_ps(all(2.0F), d[2], d[4]);
    const __m256 odd_a = _mm256_fnmadd_ps(all(2.0F), d[1], d[3]);
    const __m256 even_b = _mm256_fnmadd_ps(all(0.5F), d[2], d[4]);
    const __m256 odd_b = _mm256_fnmadd_ps(all(0.5F), d[1], d[3]);
    v[0] = _mm256_fnmadd_ps(all(2.5F), d[2], _mm256_add_ps(d[0], d[4]));
    v[1] = _mm256_fmadd_ps(all(root_half), odd_a, even_a);
    v[2] = _mm256_fnmadd_ps(all(root_half), odd_a, even_a);
    v[3] = _mm256_fmadd_ps(all(root_2), odd_b, even_b);
    v[4] = _mm256_fnmadd_ps(all(root_2), odd_b, even_b);
    v[5] = _mm256_fnmadd_ps(all(2.5F), d[3], _mm256_add_ps(d[1], d[5]));
  }

  // Each point's row is divided by the other points' distances: 1, 2a^2(a^2-b^2), 2b^2(b^2-a^2).
  static constexpr float scale_a = -2.0F / 3, scale_b = 1.0F / 6;

  TESSERA_AVX2_INLINE static void weight(const __m256* g, __m256* u) {
    const __m256 even_a = _mm256_mul_ps(all(scale_a), _mm256_fmadd_ps(all(0.5F), g[2], g[0]));
    const __m256 even_b = _mm256_mul_ps(all(scale_b), _mm256_fmadd_ps(all(2.0F), g[2], g[0]));
    u[0] = g[0];
    u[1] = _mm256_fmadd_ps(all(scale_a * root_half), g[1], even_a);
    u[2] = _mm256_fnmadd_ps(all(scale_a * root_half), g[1], even_a);
    u[3] = _mm256_fmadd_ps(all(scale_b * root_2), g[1], even_b);
    u[4] = _mm256_fnmadd_ps(all(scale_b * root_2), g[1], even_b);
    u[5] = g[2];
  }

  TESSERA_AVX2_INLINE static void output(const __m256* m, __m256* y) {
    const __m256 sum_a = _mm256_add_ps(m[1], m[2]), sum_b = _mm256_add_ps(m[3], m[4]);
    const __m256 dif_a = _mm256_sub_ps(m[1], m[2]), dif_b = _mm256_sub_ps(m[3], m[4]);
    y[0] = _mm256_add_ps(m[0], _mm256_add_ps(sum_a, sum_b));
    y[1] = _mm256_fmadd_ps(all(root_2), dif_b, _mm256_mul_ps(all(root_half), dif_a));
    y[2] = _mm256_fmadd_ps(all(2.0F), sum_b, _mm256_mul_ps(all(0.5F), sum_a));
    y[3] =
        _mm256_fmadd_ps(all(2 * root_2), dif_b, _mm256_fmadd_ps(all(root_half / 2), dif_a, m[5]));
  }

  TESSERA_AVX2_INLINE static void output_grad(const __m256* y, __m256* m) {
    const __m256 even_a = _mm256_fmadd_ps(all(0.5F), y[2], y[0]);
    const __m256 even_b = _mm256_fmadd_ps(all(2.0F), y[2], y[0]);
    const __m256 odd_a = _mm256_fmadd_ps(all(0.5F), y[3], y[1]);
    const __m256 odd_b = _mm256_fmadd_ps(all(2.0F), y[3], y[1]);
    m[0] = y[0];
    m[1] = _mm256_fmadd_ps(all(root_half), odd_a, even_a);
    m[2] = _mm256_fnmadd_ps(all(root_half), odd_a, even_a);
    m[3] = _mm256_fmadd_ps(all(root_2), odd_b, even_b);
    m[4] = _mm256_fnmadd_ps(all(root_2), odd_b, even_b);
    m[5] = y[3];
  }

  TESSERA_AVX2_INLINE static void weight_grad(const __m256* u, __m256* g) {
    const __m256 sum_a = _mm256_mul_ps(all(scale_a), _mm256_add_ps(u[1], u[2]));
    const __m256 sum_b = _mm256_mul_ps(all(scale_b), _mm256_add_ps(u[3], u[4]));
    const __m256 dif_a = _mm256_sub_ps(u[1], u[2]), dif_b = _mm256_sub_ps(u[3], u[4]);
    g[0] = _mm256_add_ps(u[0], _mm256_add_ps(sum_a, sum_b));
    g[1] = _mm256_fmadd_ps(all(scale_a * root_half), dif_a,
                           _mm256_mul_ps(all(scale_b * root_2), dif_b));
    g[2] = _mm256_fmadd_ps(all(2.0F), sum_b, _mm256_fmadd_ps(all(0.5F), sum_a, u[5]));
  }
};

struct Lines2 {
  static constexpr int tile = 2, inputs = 4;

  TESSERA_AVX2_INLINE static void input(const __m256* d, __m256* v) {
    v[0] = _mm256_sub_ps(d[0], d[2]);
    v[1] = _mm256_add_ps(d[2], d[1]);
    v[2] = _mm256_sub_ps(d[2], d[1]);
    v[3] = _mm256_sub_ps(d[3], d[1]);
  }

  TESSERA_AVX2_INLINE static void weight(const __m256* g, __m256* u) {
    const __m256 even = _mm256_mul_ps(all(0.5F), _mm256_add_ps(g[0], g[2]));
    u[0] = g[0];
    u[1] = _mm256_fmadd_ps(all(0.5F), g[1], even);
    u[2] = _mm256_fnmadd_ps(all(0.5F), g[1], even);
    u[3] = g[2];
  }

  TESSERA_AVX2_INLINE static void output(const __m256* m, __m256* y) {
    y[0] = _mm256_add_ps(m[0], _mm256_add_ps(m[1], m[2]));
    y[1] = _mm256_add_ps(m[3], _mm256_sub_ps(m[1], m[2]));
  }

  TESSERA_AVX2_INLINE static void output_grad(const __m256* y, __m256* m) {
    m[0] = y[0];
    m[1] = _mm256_add_ps(y[0], y[1]);
    m[2] = _mm256_sub_ps(y[0], y[1]);
    m[3] = y[1];
  }

  TESSERA_AVX2_INLINE static void weight_grad(const __m256* u, __m256* g) {
    const __m256 sum = _mm256_mul_ps(all(0.5F), _mm256_add_ps(u[1], u[2]));
    g[0] = _mm256_add_ps(u[0], sum);
    g[1] = _mm256_mul_ps(all(0.5F), _mm256_sub_ps(u[1], u[2]));
    g[2] = _mm256_add_ps(u[3], sum);
  }
};

enum class Then { store, add };

// Lines from `In` to `Out` vectors, first along the columns, then along the rows. `more` is added
// to every vector, or to what lies there already.
template <int In, int Out, void (*line)(const __m256*, __m256*), Then then = Then::store,
          typename Element>
TESSERA_AVX2_INLINE void both_ways(const Element* from, int64_t from_row, int64_t from_column,
                                   float* to, int64_t to_row, int64_t to_column,
                                   const float* more = nullptr) {
  __m256 half[Out][In];
#pragma GCC unroll 6
  for (int j = 0; j < In; ++j) {
    __m256 x[In], y[Out];
#pragma GCC unroll 6
    for (int i = 0; i < In; ++i) x[i] = load_eight(from + i * from_row + j * from_column);
    line(x, y);
#pragma GCC unroll 6
    for (int i = 0; i < Out; ++i) half[i][j] = y[i];
  }
  const __m256 extra = more ? _mm256_loadu_ps(more) : _mm256_setzero_ps();
#pragma GCC unroll 6
  for (int i = 0; i < Out; ++i) {
    __m256 y[Out];
    line(half[i], y);
#pragma GCC unroll 6
    for (int j = 0; j < Out; ++j) {
      float* place = to + i * to_row + j * to_column;
      if (then == Then::add) y[j] = _mm256_add_ps(y[j], _mm256_loadu_ps(place));
      if (more) y[j] = _mm256_add_ps(y[j], extra);
      _mm256_storeu_ps(place, y[j]);
    }
  }
}

template <int Size, typename Element>
TESSERA_AVX2_INLINE bool inside(const TileOf<Element>& t) {
  return t.y >= 0 && t.x >= 0 && t.y + Size <= t.height && t.x + Size <= t.width;
}

template <typename Element>
TESSERA_AVX2_INLINE Element* place_of(const TileOf<Element>& t, int64_t i, int64_t j) {
  return t.image + ((t.y + i) * t.width + t.x + j) * lanes;
}

// What of the tile lies in the image.
struct Part {
  int64_t top, bottom, left, right;
};
template <int Size, typename Element>
TESSERA_AVX2_INLINE Part part_of(const TileOf<Element>& t) {
  return {std::max<int64_t>(0, -t.y), std::min<int64_t>(Size, t.height - t.y),
          std::max<int64_t>(0, -t.x), std::min<int64_t>(Size, t.width - t.x)};
}

template <int Size, typename Element>
TESSERA_AVX2_INLINE void read_part(const TileOf<Element>& t, float* to) {
  for (int64_t i = 0; i < Size * Size; ++i) {
    _mm256_storeu_ps(to + i * lanes, _mm256_setzero_ps());
  }
  const Part part = part_of<Size>(t);
  for (int64_t i = part.top; i < part.bottom; ++i) {
    for (int64_t j = part.left; j < part.right; ++j) {
      _mm256_storeu_ps(to + (i * Size + j) * lanes, load_eight(place_of(t, i, j)));
    }
  }
}

template <int Size>
TESSERA_AVX2_INLINE void write_part(const float* from, const ImageTile& t) {
  const Part part = part_of<Size>(t);
  for (int64_t i = part.top; i < part.bottom; ++i) {
    for (int64_t j = part.left; j < part.right; ++j) {
      _mm256_storeu_ps(place_of(t, i, j), _mm256_loadu_ps(from + (i * Size + j) * lanes));
    }
  }
}

// The rows of tiles some steps to the right: large images come from memory in too many streams for
// the hardware to foresee.
template <int Size, int Step, typename Element>
TESSERA_AVX2_INLINE void prefetch(const TileOf<Element>& t) {
  constexpr int64_t ahead = 40, places_per_line = int64_t{64 / sizeof(Element)} / lanes;
  for (int64_t i = 0; i < Size; ++i) {
    for (int64_t j = 0; j < Step; j += places_per_line) {
      _mm_prefetch(reinterpret_cast<const char*>(place_of(t, i, ahead + j)), _MM_HINT_T0);
    }
  }
}

template <typename Lines>
struct Maps {
  static constexpr int tile = Lines::tile, inputs = Lines::inputs;

  template <typename Element>
  TESSERA_AVX2 static void input(const TileOf<Element>& from, float* v, int64_t stride) {
    if (inside<inputs>(from)) {
      prefetch<inputs, tile>(from);
      both_ways<inputs, inputs, Lines::input>(place_of(from, 0, 0), from.width * lanes, lanes, v,
                                              inputs * stride, stride);
      return;
    }
    alignas(32) float part[inputs * inputs * lanes];
    read_part<inputs>(from, part);
    both_ways<inputs, inputs, Lines::input>(part, inputs * lanes, lanes, v, inputs * stride,
                                            stride);
  }

  TESSERA_AVX2 static void weight(const float* taps, int64_t tap_stride, float* u, int64_t stride) {
    both_ways<3, inputs, Lines::weight>(taps, 3 * tap_stride, tap_stride, u, inputs * stride,
                                        stride);
  }

  TESSERA_AVX2 static void output(const float* m, int64_t stride, const float* bias,
                                  const ImageTile& to) {
    if (inside<tile>(to)) {
      both_ways<inputs, tile, Lines::output>(m, inputs * stride, stride, place_of(to, 0, 0),
                                             to.width * lanes, lanes, bias);
      return;
    }
    alignas(32) float part[tile * tile * lanes];
    both_ways<inputs, tile, Lines::output>(m, inputs * stride, stride, part, tile * lanes, lanes,
                                           bias);
    write_part<tile>(part, to);
  }

  template <typename Element>
  TESSERA_AVX2 static void output_grad(const TileOf<Element>& from, float* y, int64_t stride) {
    if (inside<tile>(from)) {
      both_ways<tile, inputs, Lines::output_grad>(place_of(from, 0, 0), from.width * lanes, lanes,
                                                  y, inputs * stride, stride);
      return;
    }
    alignas(32) float part[tile * tile * lanes];
    read_part<tile>(from, part);
    both_ways<tile, inputs, Lines::output_grad>(part, tile * lanes, lanes, y, inputs * stride,
                                                stride);
  }

  TESSERA_AVX2 static void weight_grad(const float* du, int64_t stride, float* taps,
                                       int64_t tap_stride, bool add) {
    if (add) {
      both_ways<inputs, 3, Lines::weight_grad, Then::add>(du, inputs * stride, stride, taps,
                                                          3 * tap_stride, tap_stride);
    } else {
      both_ways<inputs, 3, Lines::weight_grad>(du, inputs * stride, stride, taps, 3 * tap_stride,
                                               tap_stride);
    }
  }
};

template <typename Lines>
constexpr WinogradTransform transform_of() {
  using M = Maps<Lines>;
  return {.tile = M::tile,
          .elements = M::inputs * M::inputs,
          .input = M::template input<const float>,
          .input_of_halves = M::template input<const Half>,
          .weight = M::weight,
          .output = M::output,
          .output_grad = M::template output_grad<const float>,
          .output_grad_of_halves = M::template output_grad<const Half>,
          .weight_grad = M::weight_grad};
}

}  // namespace

const WinogradTransform& winograd_transform(int tile) {
  static constexpr WinogradTransform four = transform_of<Lines4>(), two = transform_of<Lines2>();
  TESSERA_INVARIANT(tile == 4 || tile == 2, "no Winograd transform of tiles of {}", tile);
  return tile == 4 ? four : two;
}

TESSERA_AVX2 void transpose_8x8(const float* from, float* to) {
  __m256 row[8], pair[8], four[8];
  for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(from + i * lanes);
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
    four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * lanes, _mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * lanes, _mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
  }
}

}  // namespace tessera::cpu
