// A number as two floats whose sum it is, to about 48 bits. Graphs have no f64, but 1 - 0.999 needs
// more than f32 has: the numbers of optimisers are operands of type f32[2].
#pragma once

#include <cmath>

namespace tessera {

struct FloatPair {
  float high = 0, low = 0;

  FloatPair() = default;
  explicit FloatPair(double number) : high(static_cast<float>(number)) {
    if (std::isfinite(high)) low = static_cast<float>(number - static_cast<double>(high));
  }

  double sum() const { return static_cast<double>(high) + static_cast<double>(low); }
};

}  // namespace tessera
