#include "examples/cpp/support/drawing.h"

#include <gtest/gtest.h>

#include <climits>
#include <set>
#include <stdexcept>
#include <string>

#include "examples/cpp/support/font.h"

namespace tessera_examples {
namespace {

constexpr Colour red{255, 0, 0};

Colour pixel(const Canvas& canvas, int x, int y) {
  const uint8_t* rgb =
      &canvas.picture().rgb[static_cast<size_t>((int64_t{y} * canvas.picture().width + x) * 3)];
  return {rgb[0], rgb[1], rgb[2]};
}

int painted(const Canvas& canvas) {
  int count = 0;
  for (int y = 0; y < canvas.picture().height; ++y) {
    for (int x = 0; x < canvas.picture().width; ++x) count += pixel(canvas, x, y) != white;
  }
  return count;
}

// One row of characters per row of font pixels.
std::string shape(char character) {
  const Glyph glyph(character);
  std::string art;
  for (int row = 0; row < glyph_rows; ++row) {
    for (int column = 0; column < glyph.columns(); ++column) {
      art += glyph.at(column, row) ? '#' : '.';
    }
    art += '\n';
  }
  return art;
}

TEST(Font, GlyphsComeFromTheirPlaceInTheTable) {
  EXPECT_EQ(shape('T'), "#####\n..#..\n..#..\n..#..\n..#..\n..#..\n..#..\n.....\n.....\n");
  EXPECT_EQ(shape('p'), ".....\n.....\n####.\n#...#\n#...#\n#...#\n####.\n#....\n#....\n");
  EXPECT_EQ(shape('!'), "#\n#\n#\n#\n#\n.\n#\n.\n.\n");
  EXPECT_EQ(shape('~'), ".....\n.....\n.#...\n#.#.#\n...#.\n.....\n.....\n.....\n.....\n");
}

TEST(Font, EveryPrintableCharacterHasAShape) {
  std::set<std::string> shapes;
  for (char character = '!'; character <= '~'; ++character) {
    EXPECT_NE(shape(character).find('#'), std::string::npos) << character;
    shapes.insert(shape(character));
  }
  // Told apart by context as in most scripts: zero and capital O, apart from that all differ.
  EXPECT_GE(shapes.size(), 93U);
}

TEST(Font, OtherBytesShowAsQuestionMark) {
  EXPECT_EQ(shape('\n'), shape('?'));
  EXPECT_EQ(shape('\xe4'), shape('?'));
  EXPECT_EQ(shape('\x7f'), shape('?'));
}

TEST(Text, DigitsAreEquallyWide) {
  for (char digit = '0'; digit <= '9'; ++digit) {
    EXPECT_EQ(text_width(std::string(1, digit), 1), 5);
  }
  EXPECT_EQ(text_width("10", 3), 33);
  EXPECT_EQ(text_width("", 3), 0);
  EXPECT_LT(text_width("ill", 1), text_width("www", 1));
  EXPECT_EQ(text_height(2), 14);
}

TEST(Canvas, RectangleFillsExactlyItsArea) {
  Canvas canvas(10, 10);
  canvas.fill_rect(2, 3, 4, 5, red);
  EXPECT_EQ(painted(canvas), 20);
  EXPECT_EQ(pixel(canvas, 2, 3), red);
  EXPECT_EQ(pixel(canvas, 5, 7), red);
  EXPECT_EQ(pixel(canvas, 6, 7), white);
}

TEST(Canvas, OutlineLeavesTheMiddle) {
  Canvas canvas(10, 10);
  canvas.outline_rect(1, 1, 5, 4, red);
  EXPECT_EQ(painted(canvas), 14);
  EXPECT_EQ(pixel(canvas, 2, 2), white);
}

TEST(Canvas, LineTouchesBothEnds) {
  Canvas canvas(10, 10);
  canvas.line(1, 1, 8, 4, red);
  EXPECT_EQ(pixel(canvas, 1, 1), red);
  EXPECT_EQ(pixel(canvas, 8, 4), red);
  EXPECT_EQ(painted(canvas), 8);
  canvas.line(9, 9, 9, 9, red);
  EXPECT_EQ(painted(canvas), 9);
}

TEST(Canvas, EverythingIsClipped) {
  Canvas canvas(8, 8);
  canvas.fill_rect(-100, -100, 50, 50, red);
  canvas.fill_rect(INT_MAX, INT_MAX, INT_MAX, INT_MAX, red);
  canvas.fill_rect(2, 2, -5, -5, red);
  canvas.text(-1000, 3, "far", red, 2);
  canvas.text(3, 1000, "far", red, 2, Direction::up);
  canvas.blit(GreyImage{2, 2, {0, 0, 0, 0}}, 50, -50, 3);
  canvas.blit(Picture{1, 1, {0, 0, 0}}, -1, 8);
  canvas.line(-5, -5, -1, 20, red);
  EXPECT_EQ(painted(canvas), 0);
  canvas.fill_rect(-5, -5, INT_MAX, INT_MAX, red);
  EXPECT_EQ(painted(canvas), 64);
}

TEST(Canvas, TextStaysInItsBox) {
  Canvas canvas(60, 40);
  canvas.text(5, 6, "TH", red, 2);
  EXPECT_EQ(pixel(canvas, 7, 6), red);
  EXPECT_EQ(pixel(canvas, 5 + text_width("TH", 2) - 1, 6 + text_height(2) - 2), red);
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 60; ++x) {
      if (x >= 5 && x < 5 + text_width("TH", 2) && y >= 6 && y < 6 + text_height(2)) continue;
      ASSERT_EQ(pixel(canvas, x, y), white) << x << ", " << y;
    }
  }
}

TEST(Canvas, TextRunningUpIsTheSameTurned) {
  const int width = text_width("Bag", 3);
  Canvas flat(width, 27);
  Canvas turned(27, width);
  flat.text(0, 0, "Bag", ink, 3);
  turned.text(0, 0, "Bag", ink, 3, Direction::up);
  for (int along = 0; along < width; ++along) {
    for (int down = 0; down < 27; ++down) {
      ASSERT_EQ(pixel(flat, along, down), pixel(turned, down, width - 1 - along));
    }
  }
}

TEST(Canvas, LargeTextHasSmoothDiagonals) {
  Canvas canvas(20, 28);
  canvas.text(0, 0, "/", Colour{0, 0, 0}, 4);
  bool half = false;
  for (int y = 0; y < 28; ++y) {
    for (int x = 0; x < 20; ++x) {
      half = half || (pixel(canvas, x, y).red > 20 && pixel(canvas, x, y).red < 235);
    }
  }
  EXPECT_TRUE(half);
}

TEST(Canvas, ImagesAreScaledToSquares) {
  Canvas canvas(8, 8, red);
  canvas.blit(GreyImage{2, 1, {0, 200}}, 1, 2, 3);
  EXPECT_EQ(pixel(canvas, 3, 4), (Colour{0, 0, 0}));
  EXPECT_EQ(pixel(canvas, 4, 4), (Colour{200, 200, 200}));
  EXPECT_EQ(pixel(canvas, 7, 4), red);
  EXPECT_EQ(pixel(canvas, 4, 5), red);
  canvas.blit(Picture{1, 1, {1, 2, 3}}, 0, 0);
  EXPECT_EQ(pixel(canvas, 0, 0), (Colour{1, 2, 3}));
}

TEST(Canvas, BrokenImagesAreRefused) {
  Canvas canvas(8, 8);
  EXPECT_THROW(canvas.blit(GreyImage{2, 2, {0}}, 0, 0, 1), std::runtime_error);
  EXPECT_THROW(canvas.blit(Picture{2, 2, {0}}, 0, 0), std::runtime_error);
}

TEST(Canvas, AbsurdSizesAreRefused) {
  try {
    Canvas canvas(0, 5);
    FAIL();
  } catch (const std::runtime_error& failure) {
    EXPECT_STREQ(failure.what(),
                 "A canvas of 0 x 5 pixels cannot be made; both sides must be 1 to 20000.");
  }
  EXPECT_THROW(Canvas(5, 20'001), std::runtime_error);
}

TEST(ColourMap, ViridisGrowsBrighter) {
  for (int i = 1; i <= 100; ++i) {
    EXPECT_GE(brightness(viridis(i / 100.0)), brightness(viridis((i - 1) / 100.0)));
  }
  EXPECT_EQ(viridis(-1), viridis(0));
  EXPECT_EQ(viridis(2), viridis(1));
  EXPECT_EQ(grey_shade(0), (Colour{0, 0, 0}));
  EXPECT_EQ(grey_shade(1), white);
}

}  // namespace
}  // namespace tessera_examples
