#include "examples/cpp/support/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace tessera_examples {
namespace {

using Bytes = std::vector<uint8_t>;

// The interpolating cubic with slope -1/2, zero from a distance of two pixels on.
double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

// Which source pixels make one output pixel, with their weights in fixed point.
struct Window {
  int first = 0;
  std::vector<int32_t> weights;
};

// Enough bits to be exact, few enough that a sum of bytes with overshooting weights fits 32 bits.
constexpr int weight_bits = 22;

std::vector<Window> make_windows(int source, int target) {
  const double scale = static_cast<double>(source) / target;
  const double stretch = std::max(scale, 1.0);  // shrinking widens the filter
  const double reach = 2.0 * stretch;
  std::vector<Window> windows(static_cast<size_t>(target));
  for (int i = 0; i < target; ++i) {
    Window& window = windows[static_cast<size_t>(i)];
    const double centre = (i + 0.5) * scale;
    window.first = static_cast<int>(std::max(centre - reach + 0.5, 0.0));
    const int last = static_cast<int>(std::min<double>(centre + reach + 0.5, source));
    std::vector<double> exact;
    double sum = 0;
    for (int x = window.first; x < last; ++x) {
      exact.push_back(cubic((x - centre + 0.5) * (1.0 / stretch)));
      sum += exact.back();
    }
    for (double weight : exact) {
      window.weights.push_back(
          static_cast<int32_t>(std::lround(weight / sum * (1 << weight_bits))));
    }
  }
  return windows;
}

// Filters along one axis. `step` is the distance between neighbours on it, `lines` says how many
// lines run along it and `line_step` how far apart they start.
struct Axis {
  size_t step, lines, line_step;
};

void filter(const uint8_t* in, Axis from, uint8_t* out, Axis to,
            const std::vector<Window>& windows) {
  for (size_t line = 0; line < from.lines; ++line) {
    for (size_t i = 0; i < windows.size(); ++i) {
      const Window& window = windows[i];
      const uint8_t* source =
          in + line * from.line_step + static_cast<size_t>(window.first) * from.step;
      for (size_t c = 0; c < 3; ++c) {
        int64_t sum = 1 << (weight_bits - 1);
        for (size_t k = 0; k < window.weights.size(); ++k) {
          sum += int64_t{source[k * from.step + c]} * window.weights[k];
        }
        out[line * to.line_step + i * to.step + c] =
            static_cast<uint8_t>(std::clamp<int64_t>(sum >> weight_bits, 0, 255));
      }
    }
  }
}

}  // namespace

void check_picture(const Picture& picture, std::string_view use) {
  const int64_t wanted = int64_t{picture.width} * picture.height * 3;
  if (picture.width < 1 || picture.height < 1 ||
      static_cast<int64_t>(picture.rgb.size()) != wanted) {
    throw std::runtime_error(fmt::format(
        "A picture to {} needs a positive size and width x height x 3 bytes, but {} x {} with {} "
        "bytes came; fill it first.",
        use, picture.width, picture.height, picture.rgb.size()));
  }
}

Picture resize(const Picture& picture, int width, int height) {
  check_picture(picture, "resize");
  if (width < 1 || height < 1 || int64_t{width} > max_picture_pixels / height) {
    throw std::runtime_error(
        fmt::format("A picture cannot be resized to {} x {} pixels; both must be at least 1 and "
                    "the product at most {}.",
                    width, height, max_picture_pixels));
  }
  const auto in_width = static_cast<size_t>(picture.width);
  const auto in_height = static_cast<size_t>(picture.height);
  const auto out_width = static_cast<size_t>(width);
  // First along rows, then along columns: with bytes in between, the order shows in the result.
  Bytes narrow(out_width * in_height * 3);
  filter(picture.rgb.data(), {3, in_height, in_width * 3}, narrow.data(),
         {3, in_height, out_width * 3}, make_windows(picture.width, width));
  Picture result{width, height, Bytes(out_width * static_cast<size_t>(height) * 3)};
  filter(narrow.data(), {out_width * 3, out_width, 3}, result.rgb.data(),
         {out_width * 3, out_width, 3}, make_windows(picture.height, height));
  return result;
}

GreyImage to_grey(const Picture& picture) {
  check_picture(picture, "turn grey");
  GreyImage grey{picture.width, picture.height, Bytes(picture.rgb.size() / 3)};
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    const uint8_t* rgb = &picture.rgb[3 * i];
    // 0.299, 0.587 and 0.114 in 16-bit fixed point; they add up to exactly one.
    grey.pixels[i] =
        static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  return grey;
}

GreyImage invert_if_light_background(GreyImage image) {
  const auto width = static_cast<size_t>(std::max(image.width, 0));
  if (image.width < 2 || image.height < 2 ||
      image.pixels.size() != width * static_cast<size_t>(image.height)) {
    throw std::runtime_error(fmt::format(
        "Judging a background needs an image of 2 x 2 pixels or more, but {} x {} with {} bytes "
        "came; use a larger one.",
        image.width, image.height, image.pixels.size()));
  }
  if (image.pixels[width + 1] > 200) {
    for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(255 - pixel);
  }
  return image;
}

GreyImage prepare_clothing(const Picture& picture) {
  return invert_if_light_background(to_grey(resize(picture, 28, 28)));
}

}  // namespace tessera_examples
