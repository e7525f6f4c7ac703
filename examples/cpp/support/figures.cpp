#include "examples/cpp/support/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "examples/cpp/support/drawing.h"

namespace tessera_examples {
namespace {

constexpr int margin = 40;
constexpr int title_scale = 4;
constexpr int label_scale = 3;
constexpr int small_scale = 2;
constexpr Colour frame{173, 181, 189};

void text_centred(Canvas& canvas, int centre, int y, std::string_view text, Colour colour,
                  int scale) {
  canvas.text(centre - text_width(text, scale) / 2, y, text, colour, scale);
}

int widest(const ClassNames& names, int scale) {
  int width = 0;
  for (const std::string& name : names) width = std::max(width, text_width(name, scale));
  return width;
}

void check_grey(const GreyImage& image) {
  if (image.width < 1 || image.height < 1 || image.width > 1024 || image.height > 1024 ||
      image.pixels.size() != static_cast<size_t>(image.width) * static_cast<size_t>(image.height)) {
    throw std::runtime_error(fmt::format(
        "An image to draw needs sides of 1 to 1024 and one byte per pixel, but {} x {} with {} "
        "bytes came; fill it first.",
        image.width, image.height, image.pixels.size()));
  }
}

// Shown as large as whole pixels allow in a square box, in its middle.
void blit_in_box(Canvas& canvas, const GreyImage& image, int x, int y, int box, ColourMap map) {
  const int scale = std::max(box / std::max(image.width, image.height), 1);
  canvas.blit(image, x + (box - image.width * scale) / 2, y + (box - image.height * scale) / 2,
              scale, map);
}

// 1, 2 or 5 times a power of ten, so that about five ticks cover the range.
int64_t tick_step(int64_t range) {
  int64_t power = 1;
  while (true) {
    for (int64_t step : {power, 2 * power, 5 * power}) {
      if (range / step <= 6) return step;
    }
    power *= 10;
  }
}

void draw_colour_bar(Canvas& canvas, int x, int y, int width, int height, int64_t most) {
  for (int row = 0; row < height; ++row) {
    canvas.fill_rect(x, y + row, width, 1, viridis(1.0 - row / (height - 1.0)));
  }
  canvas.outline_rect(x, y, width, height, frame);
  const int64_t step = tick_step(most);
  for (int64_t value = 0; value <= most; value += step) {
    const double part = static_cast<double>(value) / static_cast<double>(most);
    const int at = y + height - 1 - static_cast<int>(std::lround(part * (height - 1)));
    canvas.fill_rect(x + width, at, 6, 1, ink);
    canvas.text(x + width + 12, at - text_height(small_scale) / 2, fmt::format("{}", value), ink,
                small_scale);
  }
}

// A box with axes, in which values from 0 to `most` stand over the epochs.
struct LossPlot {
  static constexpr int left = 130, top = 130, width = 900, height = 480;
  int64_t epochs = 1;
  double most = 1;

  int x_of(double epoch) const {
    return left + static_cast<int>(std::lround(epoch / static_cast<double>(epochs) * (width - 1)));
  }
  int y_of(double loss) const {
    return top + height - 1 - static_cast<int>(std::lround(loss / most * (height - 1)));
  }

  void draw_axes(Canvas& canvas) const {
    for (int64_t epoch = 0; epoch <= epochs; epoch += tick_step(epochs)) {
      const int x = x_of(static_cast<double>(epoch));
      canvas.fill_rect(x, top, 1, height + 6, light);
      text_centred(canvas, x, top + height + 14, fmt::format("{}", epoch), ink, small_scale);
    }
    const int64_t hundredths = std::max(static_cast<int64_t>(most * 100), int64_t{1});
    for (int64_t value = 0; value <= hundredths; value += tick_step(hundredths)) {
      const double loss = static_cast<double>(value) / 100;
      const std::string text = fmt::format("{:g}", loss);
      canvas.fill_rect(left - 6, y_of(loss), width + 6, 1, light);
      canvas.text(left - 14 - text_width(text, small_scale),
                  y_of(loss) - text_height(small_scale) / 2, text, ink, small_scale);
    }
    canvas.outline_rect(left, top, width, height, frame);
  }

  void draw_curve(Canvas& canvas, const std::vector<double>& points) const {
    const double share = static_cast<double>(epochs) / static_cast<double>(points.size());
    const auto middle = [&](size_t i) { return x_of((static_cast<double>(i) + 0.5) * share); };
    for (size_t i = 0; i < points.size(); ++i) {
      const size_t before = i == 0 ? 0 : i - 1;
      for (const int thickness : {-1, 0, 1}) {
        canvas.line(middle(before), y_of(points[before]) + thickness, middle(i),
                    y_of(points[i]) + thickness, viridis(0.25));
      }
    }
  }

 private:
  static constexpr Colour light{233, 236, 239};
};

// Means over at most `count` equal parts.
std::vector<double> means_of(const std::vector<double>& values, size_t count) {
  const size_t parts = std::min(values.size(), count);
  std::vector<double> means;
  for (size_t i = 0; i < parts; ++i) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(i * values.size() / parts);
    const auto end = values.begin() + static_cast<ptrdiff_t>((i + 1) * values.size() / parts);
    means.push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

Picture draw_sample_images(const std::vector<GreyImage>& images, const std::vector<uint8_t>& labels,
                           const ClassNames& class_names) {
  if (images.empty() || images.size() != labels.size()) {
    throw std::runtime_error(
        fmt::format("Sample images need one label each, but {} images and {} labels came; pass "
                    "equally many of both.",
                    images.size(), labels.size()));
  }
  constexpr int per_row = 5;
  const int count = static_cast<int>(std::min<size_t>(images.size(), 15));
  int box = 168;  // six times the data set's 28
  for (int i = 0; i < count; ++i) {
    const GreyImage& image = images[static_cast<size_t>(i)];
    check_grey(image);
    box = std::max({box, image.width, image.height});
  }

  const int gap = 36;
  const int title_bottom = margin + text_height(title_scale) + 36;
  const int row_height = text_height(label_scale) + 16 + box + gap;
  const int rows = (count + per_row - 1) / per_row;
  Canvas canvas(2 * margin + per_row * box + (per_row - 1) * gap,
                title_bottom + rows * row_height - gap + margin);
  text_centred(canvas, canvas.picture().width / 2, margin, "Fashion-MNIST sample images", ink,
               title_scale);
  for (int i = 0; i < count; ++i) {
    const uint8_t label = labels[static_cast<size_t>(i)];
    if (label >= class_names.size()) {
      throw std::runtime_error(fmt::format(
          "Sample image {} has label {}, but labels are 0 to {}; pass the data set's labels.", i,
          label, class_names.size() - 1));
    }
    const int x = margin + i % per_row * (box + gap);
    const int y = title_bottom + i / per_row * row_height;
    text_centred(canvas, x + box / 2, y, class_names[label], ink, label_scale);
    blit_in_box(canvas, images[static_cast<size_t>(i)], x, y + text_height(label_scale) + 16, box,
                viridis);
  }
  return canvas.picture();
}

Picture draw_confusion_matrix(const ConfusionCounts& counts, const ClassNames& class_names) {
  constexpr int classes = static_cast<int>(class_count);
  constexpr int64_t max_count = 1'000'000'000'000;  // keeps cells and sums in bounds
  int64_t most = 1;
  int64_t total = 0;
  int64_t correct = 0;
  for (size_t row = 0; row < class_count; ++row) {
    for (size_t column = 0; column < class_count; ++column) {
      if (counts[row][column] < 0 || counts[row][column] > max_count) {
        throw std::runtime_error(
            fmt::format("A confusion matrix counts images, but {} came in row "
                        "{}, column {}; pass counts from 0 to {}.",
                        counts[row][column], row, column, max_count));
      }
      most = std::max(most, counts[row][column]);
      total += counts[row][column];
    }
    correct += counts[row][row];
  }

  const int number_width = text_width(fmt::format("{}", most), small_scale);
  const int cell = std::max(66, number_width + 12);
  const int side = classes * cell;
  const int names_width = widest(class_names, small_scale);
  const int name_gap = 14;
  const int left = margin + text_height(label_scale) + 24 + names_width + name_gap;
  const int top = margin + text_height(title_scale) + 18 + text_height(small_scale) + 34;
  const int bar_x = left + side + 40;
  const int bar_width = 28;
  Canvas canvas(bar_x + bar_width + 12 + number_width + margin,
                top + side + name_gap + names_width + 28 + text_height(label_scale) + margin);

  text_centred(canvas, left + side / 2, margin, "Confusion matrix", ink, title_scale);
  if (total > 0) {
    const double percent = 100.0 * static_cast<double>(correct) / static_cast<double>(total);
    text_centred(canvas, left + side / 2, margin + text_height(title_scale) + 18,
                 fmt::format("{} of {} correct ({:.2f}%)", correct, total, percent), soft_ink,
                 small_scale);
  }
  for (int row = 0; row < classes; ++row) {
    for (int column = 0; column < classes; ++column) {
      const int64_t count = counts[static_cast<size_t>(row)][static_cast<size_t>(column)];
      const Colour shade = viridis(static_cast<double>(count) / static_cast<double>(most));
      const int x = left + column * cell;
      const int y = top + row * cell;
      canvas.fill_rect(x, y, cell, cell, shade);
      text_centred(canvas, x + cell / 2, y + (cell - text_height(small_scale)) / 2,
                   fmt::format("{}", count), brightness(shade) > 125 ? ink : white, small_scale);
    }
  }
  canvas.outline_rect(left, top, side, side, frame);

  for (int i = 0; i < classes; ++i) {
    const std::string& name = class_names[static_cast<size_t>(i)];
    const int middle = i * cell + cell / 2;
    const int half_height = text_height(small_scale) / 2;
    canvas.fill_rect(left - 6, top + middle, 6, 1, ink);
    canvas.text(left - name_gap - text_width(name, small_scale), top + middle - half_height, name,
                ink, small_scale);
    canvas.fill_rect(left + middle, top + side, 1, 6, ink);
    canvas.text(left + middle - half_height, top + side + name_gap, name, ink, small_scale,
                Direction::up);
  }
  const std::string_view true_label = "True label";
  canvas.text(margin, top + (side - text_width(true_label, label_scale)) / 2, true_label, ink,
              label_scale, Direction::up);
  text_centred(canvas, left + side / 2, top + side + name_gap + names_width + 28, "Predicted label",
               ink, label_scale);
  draw_colour_bar(canvas, bar_x, top, bar_width, side, most);
  return canvas.picture();
}

Picture draw_loss_curve(const std::vector<double>& losses, int64_t epochs) {
  const auto usable = [](double loss) { return std::isfinite(loss) && loss >= 0 && loss < 1e12; };
  if (losses.empty() || epochs < 1 || !std::all_of(losses.begin(), losses.end(), usable)) {
    throw std::runtime_error(
        fmt::format("A loss curve needs losses from 0 on and at least one epoch, but {} losses and "
                    "{} epochs came; pass those of a training that did not diverge.",
                    losses.size(), epochs));
  }
  const std::vector<double> points = means_of(losses, 150);
  const double highest = *std::max_element(points.begin(), points.end());
  const LossPlot plot{.epochs = epochs, .most = std::max(1.05 * highest, 0.01)};
  Canvas canvas(LossPlot::left + LossPlot::width + 2 * margin,
                LossPlot::top + LossPlot::height + 80 + text_height(label_scale) + margin);
  const int middle = LossPlot::left + LossPlot::width / 2;
  text_centred(canvas, middle, margin, "Training loss", ink, title_scale);
  text_centred(canvas, middle, margin + text_height(title_scale) + 18,
               fmt::format("{} updates of the weights, from {:.2f} to {:.2f}", losses.size(),
                           points.front(), points.back()),
               soft_ink, small_scale);
  plot.draw_axes(canvas);
  plot.draw_curve(canvas, points);
  text_centred(canvas, middle, LossPlot::top + LossPlot::height + 62, "Epoch", ink, label_scale);
  canvas.text(margin, LossPlot::top + (LossPlot::height - text_width("Loss", label_scale)) / 2,
              "Loss", ink, label_scale, Direction::up);
  return canvas.picture();
}

Picture draw_before_after(const Picture& original, const GreyImage& transformed,
                          const std::string& verdict) {
  check_grey(transformed);
  check_picture(original, "draw");
  const int box = std::max({448, transformed.width, transformed.height});  // sixteen times 28
  const int gap = 48;
  const int title_bottom = margin + text_height(label_scale) + 20;
  const int verdict_top = title_bottom + box + 16 + text_height(small_scale) + 36;
  Canvas canvas(2 * margin + 2 * box + gap, verdict_top + text_height(title_scale) + margin);

  const double scale = static_cast<double>(box) / std::max(original.width, original.height);
  const Picture fitted = resize(original, std::max(static_cast<int>(original.width * scale), 1),
                                std::max(static_cast<int>(original.height * scale), 1));
  const int right = margin + box + gap;
  const Colour paper{241, 243, 245};  // shows where a picture that is not square ends
  canvas.fill_rect(margin, title_bottom, box, box, paper);
  canvas.fill_rect(right, title_bottom, box, box, paper);
  canvas.blit(fitted, margin + (box - fitted.width) / 2, title_bottom + (box - fitted.height) / 2);
  blit_in_box(canvas, transformed, right, title_bottom, box, grey_shade);
  canvas.outline_rect(margin - 1, title_bottom - 1, box + 2, box + 2, frame);
  canvas.outline_rect(right - 1, title_bottom - 1, box + 2, box + 2, frame);

  text_centred(canvas, margin + box / 2, margin, "Original image", ink, label_scale);
  text_centred(canvas, right + box / 2, margin, "Transformed image", ink, label_scale);
  auto size_text = [](int width, int height) {
    return fmt::format("{} x {} pixels", width, height);
  };
  text_centred(canvas, margin + box / 2, title_bottom + box + 16,
               size_text(original.width, original.height), soft_ink, small_scale);
  text_centred(canvas, right + box / 2, title_bottom + box + 16,
               size_text(transformed.width, transformed.height), soft_ink, small_scale);
  text_centred(canvas, canvas.picture().width / 2, verdict_top, verdict, ink, title_scale);
  return canvas.picture();
}

}  // namespace tessera_examples
