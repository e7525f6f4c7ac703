#include "examples/cpp/support/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/cpp/support/drawing.h"

namespace tessera_examples {
namespace {

const ClassNames names = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
                          "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

GreyImage flat(uint8_t shade) { return {28, 28, std::vector<uint8_t>(28 * 28, shade)}; }

int64_t count_of(const Picture& picture, Colour colour) {
  int64_t count = 0;
  for (size_t i = 0; i < picture.rgb.size(); i += 3) {
    count += Colour{picture.rgb[i], picture.rgb[i + 1], picture.rgb[i + 2]} == colour;
  }
  return count;
}

// A figure has white margins and is whole.
void expect_well_framed(const Picture& picture) {
  ASSERT_EQ(picture.rgb.size(),
            static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 3);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      if (x >= 20 && y >= 20 && x < picture.width - 20 && y < picture.height - 20) continue;
      ASSERT_EQ(picture.rgb[static_cast<size_t>((int64_t{y} * picture.width + x) * 3)], 255);
    }
  }
}

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& failure) {
    return failure.what();
  }
  return "no error";
}

TEST(SampleImages, ShowsFifteenLargeImages) {
  const std::vector<GreyImage> images(20, flat(255));
  const Picture figure = draw_sample_images(images, std::vector<uint8_t>(20, 9), names);
  expect_well_framed(figure);
  EXPECT_EQ(count_of(figure, viridis(1)), 15 * 168 * 168);
  EXPECT_GT(count_of(figure, ink), 1000);
}

TEST(SampleImages, TakesFewerAndLarger) {
  const Picture figure = draw_sample_images({flat(255), flat(255)}, {0, 1}, names);
  expect_well_framed(figure);
  EXPECT_EQ(count_of(figure, viridis(1)), 2 * 168 * 168);
  const GreyImage wide{300, 200, std::vector<uint8_t>(60'000, 255)};
  EXPECT_EQ(count_of(draw_sample_images({wide}, {0}, names), viridis(1)), 60'000);
}

TEST(SampleImages, RefusesWhatDoesNotFit) {
  EXPECT_EQ(message([] { draw_sample_images({flat(0)}, {}, names); }),
            "Sample images need one label each, but 1 images and 0 labels came; pass equally many "
            "of both.");
  EXPECT_NE(message([] { draw_sample_images({}, {}, names); }), "no error");
  EXPECT_EQ(message([] { draw_sample_images({flat(0)}, {10}, names); }),
            "Sample image 0 has label 10, but labels are 0 to 9; pass the data set's labels.");
  EXPECT_EQ(message([] {
              draw_sample_images({GreyImage{28, 28, {1}}}, {1}, names);
            }),
            "An image to draw needs sides of 1 to 1024 and one byte per pixel, but 28 x 28 with 1 "
            "bytes came; fill it first.");
}

TEST(ConfusionMatrix, ColoursCellsByCount) {
  ConfusionCounts counts{};
  for (size_t i = 0; i < class_count; ++i) counts[i][i] = 1000;
  const Picture figure = draw_confusion_matrix(counts, names);
  expect_well_framed(figure);
  // Ten bright cells and ninety dark ones, less their numbers.
  EXPECT_GT(count_of(figure, viridis(1)), 10 * 66 * 66 * 3 / 4);
  EXPECT_GT(count_of(figure, viridis(0)), 90 * 66 * 66 * 3 / 4);
}

TEST(ConfusionMatrix, NumbersContrastWithTheirCells) {
  ConfusionCounts dark{};
  dark[0][0] = 0;
  const int64_t before = count_of(draw_confusion_matrix(dark, names), ink);
  ConfusionCounts bright{};
  for (auto& row : bright) row.fill(7);
  EXPECT_GT(count_of(draw_confusion_matrix(bright, names), ink), before);
}

TEST(ConfusionMatrix, TakesEmptyAndHugeCounts) {
  expect_well_framed(draw_confusion_matrix({}, names));
  ConfusionCounts counts{};
  counts[3][4] = 900'000'000'000;
  expect_well_framed(draw_confusion_matrix(counts, names));
}

TEST(ConfusionMatrix, RefusesNegativeCounts) {
  ConfusionCounts counts{};
  counts[1][2] = -5;
  EXPECT_EQ(message([&] { draw_confusion_matrix(counts, names); }),
            "A confusion matrix counts images, but -5 came in row 1, column 2; pass counts from 0 "
            "to 1000000000000.");
  counts[1][2] = INT64_MAX;
  EXPECT_NE(message([&] { draw_confusion_matrix(counts, names); }), "no error");
}

TEST(BeforeAfter, ShowsBothLarge) {
  Picture red{30, 60, {}};
  for (int i = 0; i < 30 * 60; ++i) red.rgb.insert(red.rgb.end(), {200, 0, 0});
  const Picture figure = draw_before_after(red, flat(77), "Bag");
  expect_well_framed(figure);
  EXPECT_EQ(count_of(figure, {200, 0, 0}), 224 * 448);
  EXPECT_EQ(count_of(figure, {77, 77, 77}), 448 * 448);
}

TEST(BeforeAfter, TakesThinPictures) {
  const Picture thin{1, 5000, std::vector<uint8_t>(15'000, 9)};
  expect_well_framed(draw_before_after(thin, flat(0), "Bag"));
}

TEST(BeforeAfter, RefusesEmptyPictures) {
  EXPECT_NE(message([] { draw_before_after({}, flat(0), ""); }), "no error");
  EXPECT_NE(message([] { draw_before_after(Picture{1, 1, {0, 0, 0}}, {}, ""); }), "no error");
}

TEST(BeforeAfter, SaysWhatItIsTakenFor) {
  const Picture photo{1, 1, {200, 0, 0}};
  const Picture silent = draw_before_after(photo, flat(77), "");
  const Picture figure = draw_before_after(photo, flat(77), "Predicted class: Ankle boot");
  expect_well_framed(figure);
  EXPECT_EQ(figure.height, silent.height);
  EXPECT_GT(count_of(figure, ink), count_of(silent, ink) + 1000);
}

// The topmost and the lowest pixel of the curve in a column of the plot.
std::pair<int, int> curve_at(const Picture& figure, double part) {
  const int x = 130 + static_cast<int>(part * 899);
  int highest = -1;
  int lowest = -1;
  for (int y = 0; y < figure.height; ++y) {
    const auto at = static_cast<size_t>((int64_t{y} * figure.width + x) * 3);
    if (Colour{figure.rgb[at], figure.rgb[at + 1], figure.rgb[at + 2]} != viridis(0.25)) continue;
    if (highest < 0) highest = y;
    lowest = y;
  }
  return {highest, lowest};
}

TEST(LossCurve, FallsWithTheLoss) {
  std::vector<double> losses;
  for (int i = 0; i < 5000; ++i) losses.push_back(2.0 - i / 5000.0);
  const Picture figure = draw_loss_curve(losses, 5);
  expect_well_framed(figure);
  // The axis ends at 2.1, so the curve goes from near its top to the middle.
  EXPECT_NEAR(curve_at(figure, 0.01).first, 130 + 480 * (1 - 2.0 / 2.1), 8);
  EXPECT_NEAR(curve_at(figure, 0.5).first, 130 + 480 * (1 - 1.5 / 2.1), 8);
  EXPECT_NEAR(curve_at(figure, 0.99).second, 130 + 480 * (1 - 1.0 / 2.1), 8);
}

TEST(LossCurve, ShowsMeansOfWhatIsTooDense) {
  std::vector<double> losses;
  for (int i = 0; i < 15000; ++i) losses.push_back(i % 2 * 2.0);
  const auto [highest, lowest] = curve_at(draw_loss_curve(losses, 1), 0.5);
  EXPECT_EQ(lowest - highest, 2);  // a flat line, three pixels thick
}

TEST(LossCurve, TakesOneLossAndNone) {
  expect_well_framed(draw_loss_curve({0.5}, 1));
  expect_well_framed(draw_loss_curve({0, 0, 0}, 1'000'000));
  EXPECT_EQ(message([] { draw_loss_curve({}, 1); }),
            "A loss curve needs losses from 0 on and at least one epoch, but 0 losses and 1 epochs "
            "came; pass those of a training that did not diverge.");
  EXPECT_NE(message([] { draw_loss_curve({0.5, std::nan("")}, 1); }), "no error");
}

}  // namespace
}  // namespace tessera_examples
