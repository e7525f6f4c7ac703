#include "examples/cpp/support/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "examples/cpp/support/font.h"

namespace tessera_examples {
namespace {

constexpr int full_coverage = 256;

Colour mix(Colour from, Colour to, double part) {
  auto channel = [part](uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(std::lround(a + (b - a) * part));
  };
  return {channel(from.red, to.red), channel(from.green, to.green), channel(from.blue, to.blue)};
}

struct Point {
  double x, y;
};

double distance_to_segment(Point p, Point from, Point to) {
  const Point along{to.x - from.x, to.y - from.y};
  const double squared = along.x * along.x + along.y * along.y;
  const double part =
      squared > 0 ? ((p.x - from.x) * along.x + (p.y - from.y) * along.y) / squared : 0;
  const double nearest = std::clamp(part, 0.0, 1.0);
  return std::hypot(p.x - from.x - nearest * along.x, p.y - from.y - nearest * along.y);
}

// Font pixels are the stations of a pen: neighbours are joined by strokes one font pixel wide, also
// diagonal ones unless they are joined around the corner. So text stays crisp where it is straight
// and smooth where it is not, at any scale.
bool are_joined(const Glyph& glyph, int column, int row, int right, int down) {
  if (!glyph.at(column, row) || !glyph.at(column + right, row + down)) return false;
  const bool diagonal = right != 0 && down != 0;
  return !diagonal || (!glyph.at(column + right, row) && !glyph.at(column, row + down));
}

// How much of one pixel the glyph covers, with its centre given in font pixels.
int coverage(const Glyph& glyph, Point p, int scale) {
  const int column = static_cast<int>(p.x);
  const int row = static_cast<int>(p.y);
  double distance = 2;
  for (int y = row - 1; y <= row + 1; ++y) {
    for (int x = column - 1; x <= column + 1; ++x) {
      for (auto [right, down] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}, {-1, 1}}) {
        if (!are_joined(glyph, x, y, right, down)) continue;
        const Point from{x + 0.5, y + 0.5};
        distance =
            std::min(distance, distance_to_segment(p, from, {from.x + right, from.y + down}));
      }
    }
  }
  const double covered = std::clamp(0.5 + (0.5 - distance) * scale, 0.0, 1.0);
  return static_cast<int>(std::lround(covered * full_coverage));
}

void check_image(const GreyImage& image) {
  if (image.width >= 0 && image.height >= 0 &&
      static_cast<int64_t>(image.pixels.size()) == int64_t{image.width} * image.height) {
    return;
  }
  throw std::runtime_error(fmt::format(
      "An image of {} x {} pixels to draw needs one byte for each, but {} came; fill it "
      "first.",
      image.width, image.height, image.pixels.size()));
}

}  // namespace

Colour grey_shade(double value) { return mix({0, 0, 0}, white, std::clamp(value, 0.0, 1.0)); }

Colour viridis(double value) {
  static constexpr std::array<Colour, 7> anchors = {{{68, 1, 84},
                                                     {70, 50, 126},
                                                     {54, 92, 141},
                                                     {33, 144, 140},
                                                     {50, 182, 122},
                                                     {144, 215, 67},
                                                     {253, 231, 37}}};
  const double place = std::clamp(value, 0.0, 1.0) * (anchors.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), anchors.size() - 2);
  return mix(anchors[below], anchors[below + 1], place - static_cast<double>(below));
}

int brightness(Colour colour) {
  return (299 * colour.red + 587 * colour.green + 114 * colour.blue + 500) / 1000;
}

int text_width(std::string_view text, int scale) {
  int columns = 0;
  for (char character : text) columns += Glyph(character).columns() + 1;
  return std::max(columns - 1, 0) * scale;
}

int text_height(int scale) { return capital_rows * scale; }

Canvas::Canvas(int width, int height, Colour background) {
  constexpr int max_side = 20'000;
  if (width < 1 || height < 1 || width > max_side || height > max_side) {
    throw std::runtime_error(
        fmt::format("A canvas of {} x {} pixels cannot be made; both sides must be 1 to {}.", width,
                    height, max_side));
  }
  picture_.width = width;
  picture_.height = height;
  picture_.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  fill_rect(0, 0, width, height, background);
}

void Canvas::blend(int64_t x, int64_t y, Colour colour, int coverage) {
  if (x < 0 || y < 0 || x >= picture_.width || y >= picture_.height || coverage == 0) return;
  uint8_t* pixel = &picture_.rgb[static_cast<size_t>((y * picture_.width + x) * 3)];
  auto channel = [coverage](uint8_t& under, int over) {
    under = static_cast<uint8_t>(under + (over - under) * coverage / full_coverage);
  };
  channel(pixel[0], colour.red);
  channel(pixel[1], colour.green);
  channel(pixel[2], colour.blue);
}

void Canvas::fill_rect(int x, int y, int width, int height, Colour colour) {
  const int64_t left = std::max(x, 0);
  const int64_t top = std::max(y, 0);
  const int64_t right = std::min<int64_t>(int64_t{x} + width, picture_.width);
  const int64_t bottom = std::min<int64_t>(int64_t{y} + height, picture_.height);
  for (int64_t row = top; row < bottom; ++row) {
    for (int64_t column = left; column < right; ++column) {
      blend(column, row, colour, full_coverage);
    }
  }
}

void Canvas::outline_rect(int x, int y, int width, int height, Colour colour) {
  fill_rect(x, y, width, 1, colour);
  fill_rect(x, y + height - 1, width, 1, colour);
  fill_rect(x, y, 1, height, colour);
  fill_rect(x + width - 1, y, 1, height, colour);
}

void Canvas::line(int x0, int y0, int x1, int y1, Colour colour) {
  // One pixel per step along the longer axis.
  const double across = static_cast<double>(x1) - x0;
  const double down = static_cast<double>(y1) - y0;
  const auto steps = static_cast<int64_t>(std::max(std::abs(across), std::abs(down)));
  for (int64_t i = 0; i <= steps; ++i) {
    const double part = steps == 0 ? 0 : static_cast<double>(i) / static_cast<double>(steps);
    blend(std::llround(x0 + across * part), std::llround(y0 + down * part), colour, full_coverage);
  }
}

void Canvas::text(int x, int y, std::string_view text, Colour colour, int scale,
                  Direction direction) {
  const int64_t width = text_width(text, scale);
  int64_t start = 0;
  for (char character : text) {
    const Glyph glyph(character);
    for (int v = 0; v < glyph_rows * scale; ++v) {
      for (int u = 0; u < glyph.columns() * scale; ++u) {
        const int covered = coverage(glyph, {(u + 0.5) / scale, (v + 0.5) / scale}, scale);
        const int64_t along = start + u;
        if (direction == Direction::right) {
          blend(x + along, int64_t{y} + v, colour, covered);
        } else {
          blend(int64_t{x} + v, y + width - 1 - along, colour, covered);
        }
      }
    }
    start += int64_t{glyph.columns() + 1} * scale;
  }
}

void Canvas::blit(const GreyImage& image, int x, int y, int scale, ColourMap map) {
  check_image(image);
  for (int row = 0; row < image.height; ++row) {
    for (int column = 0; column < image.width; ++column) {
      const int64_t left = x + int64_t{column} * scale;
      const int64_t top = y + int64_t{row} * scale;
      if (left >= picture_.width || top >= picture_.height) continue;
      const size_t at =
          static_cast<size_t>(row) * static_cast<size_t>(image.width) + static_cast<size_t>(column);
      fill_rect(static_cast<int>(left), static_cast<int>(top), scale, scale,
                map(image.pixels[at] / 255.0));
    }
  }
}

void Canvas::blit(const Picture& image, int x, int y) {
  check_picture(image, "draw");
  for (int row = 0; row < image.height; ++row) {
    for (int column = 0; column < image.width; ++column) {
      const uint8_t* rgb = &image.rgb[(static_cast<size_t>(row) * static_cast<size_t>(image.width) +
                                       static_cast<size_t>(column)) *
                                      3];
      blend(int64_t{x} + column, int64_t{y} + row, {rgb[0], rgb[1], rgb[2]}, full_coverage);
    }
  }
}

}  // namespace tessera_examples
