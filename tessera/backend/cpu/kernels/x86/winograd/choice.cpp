#include "tessera/backend/cpu/kernels/x86/winograd/choice.h"

#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

// In cycles of a core that does two vector multiply-adds in each.
constexpr double multiply_adds_per_cycle = 16;

double direct_cycles(const WinogradShape& s) {
  const auto places = static_cast<double>(s.batch * s.out_height() * s.out_width());
  // With few channels the direct kernels read more than they compute.
  const double efficiency = s.in < 24 || s.out < 24 ? 0.75 : 0.92;
  return places * 9 * static_cast<double>(s.in * s.out) / (multiply_adds_per_cycle * efficiency);
}

double winograd_cycles(const WinogradShape& s, int64_t tile) {
  const auto tiles = static_cast<double>(s.batch * divided_up(s.out_height(), tile) *
                                         divided_up(s.out_width(), tile));
  const auto elements = static_cast<double>((tile + 2) * (tile + 2));
  const auto products = static_cast<double>(s.in * s.out);
  const double gemm = tiles * elements * products / (multiply_adds_per_cycle * 0.9);
  // A vector of eight channels of a tile, there and back, and of the weights.
  const double transforms = tiles * elements * static_cast<double>(s.in + s.out) / 8 * 3.5;
  const double weights = elements * products / 8 * 7;
  return gemm + transforms + weights;
}

}  // namespace

int winograd_tile(const WinogradShape& shape, bool precise) {
  const double direct = direct_cycles(shape), two = winograd_cycles(shape, 2),
               four = precise ? two : winograd_cycles(shape, 4);
  if (four < two && four < direct) return 4;
  return two < direct ? 2 : 0;
}

}  // namespace tessera::cpu
