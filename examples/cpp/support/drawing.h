// A small canvas for figures: rectangles, lines, text in an embedded bitmap font, images, colour
// maps. Coordinates are pixels from the top left; whatever falls outside is clipped, so no call can
// write beyond the picture.
#pragma once

#include <cstdint>
#include <string_view>

#include "examples/cpp/support/picture.h"

namespace tessera_examples {

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
  bool operator==(const Colour&) const = default;
};

inline constexpr Colour white{255, 255, 255};
inline constexpr Colour ink{33, 37, 41};
inline constexpr Colour soft_ink{108, 117, 125};

// A colour map takes a value in 0..1 (others are clamped) to a colour.
using ColourMap = Colour (*)(double value);
Colour grey_shade(double value);  // black to white
Colour viridis(double value);     // dark violet over teal to yellow, ever brighter

// How bright a colour looks, 0..255.
int brightness(Colour colour);

// Text is measured as drawn: digits are equally wide, other glyphs as wide as they need. Height is
// that of capitals; descenders reach two font pixels further down.
int text_width(std::string_view text, int scale);
int text_height(int scale);

enum class Direction { right, up };

class Canvas {
 public:
  // Throws std::runtime_error unless both sizes are 1 to 20000.
  Canvas(int width, int height, Colour background = white);

  void fill_rect(int x, int y, int width, int height, Colour colour);
  void outline_rect(int x, int y, int width, int height, Colour colour);
  void line(int x0, int y0, int x1, int y1, Colour colour);

  // (x, y) is the top left corner of the text's box, also when it runs up. Characters other than
  // printable ASCII show as '?'.
  void text(int x, int y, std::string_view text, Colour colour, int scale,
            Direction direction = Direction::right);

  // Every pixel of the image becomes a square of `scale` pixels.
  void blit(const GreyImage& image, int x, int y, int scale, ColourMap map = grey_shade);
  void blit(const Picture& image, int x, int y);

  const Picture& picture() const { return picture_; }

 private:
  void blend(int64_t x, int64_t y, Colour colour, int coverage);

  Picture picture_;
};

}  // namespace tessera_examples
