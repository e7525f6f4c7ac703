// The linear maps of Winograd's convolution with 3x3 weights, F(4,3) and F(2,3): a tile of
// `tile` x `tile` results is computed from (tile + 2)^2 inputs by as many independent products.
// Every map works on vectors of eight channels and leaves the channels as they are, so that there
// are no shuffles. Elements of the transformed side lie `element_stride` floats apart.
//
// F(4,3) interpolates at 0, +-sqrt(1/2), +-sqrt(2) and infinity. The usual 0, +-1, +-2 (or +-1/2)
// give errors 3 to 4 times as large; +-3/4, +-3/2 and +-2/3, +-3/2 come close to these but have no
// a^2 b^2 = 1, which saves multiplications. F(2,3) interpolates at 0, +-1 and infinity.
//
// All functions need AVX2 and FMA.
#pragma once

#include <cstdint>

#include "tessera/base/half.h"

namespace tessera::cpu {

// Part of an image of eight channels per place; strides in elements. Places outside the image read
// as zeros and are not written.
template <typename Element>
struct TileOf {
  Element* image = nullptr;  // its first place
  int64_t height = 0, width = 0;
  int64_t y = 0, x = 0;  // where the tile begins, may be outside
};
using ImageTile = TileOf<float>;

struct WinogradTransform {
  int tile = 0;
  int64_t elements = 0;  // (tile + 2)^2

  // Inputs of a tile to V; halves are widened on the way.
  void (*input)(const TileOf<const float>& from, float* v, int64_t element_stride);
  void (*input_of_halves)(const TileOf<const Half>& from, float* v, int64_t element_stride);
  // [3][3] vectors `tap_stride` apart to U.
  void (*weight)(const float* taps, int64_t tap_stride, float* u, int64_t element_stride);
  // Sums of products of U and V to the results of a tile, plus eight values of bias.
  void (*output)(const float* m, int64_t element_stride, const float* bias, const ImageTile& to);
  // The transposes of the last two, for the gradient of the weights.
  void (*output_grad)(const TileOf<const float>& from, float* y, int64_t element_stride);
  void (*output_grad_of_halves)(const TileOf<const Half>& from, float* y, int64_t element_stride);
  void (*weight_grad)(const float* du, int64_t element_stride, float* taps, int64_t tap_stride,
                      bool add);
};

const WinogradTransform& winograd_transform(int tile);

// The two by the type of what is read.
inline auto input_from(const WinogradTransform& t, const float*) { return t.input; }
inline auto input_from(const WinogradTransform& t, const Half*) { return t.input_of_halves; }
inline auto output_grad_from(const WinogradTransform& t, const float*) { return t.output_grad; }
inline auto output_grad_from(const WinogradTransform& t, const Half*) {
  return t.output_grad_of_halves;
}

// from [8][8] to its transpose, both dense.
void transpose_8x8(const float* from, float* to);

}  // namespace tessera::cpu
