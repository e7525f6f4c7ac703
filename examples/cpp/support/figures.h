// The tutorial's figures, drawn without a plotting library: white background, margins, a
// title, text large enough to read. Inputs that do not fit together end in a std::runtime_error of
// one sentence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/cpp/support/picture.h"

namespace tessera_examples {

inline constexpr size_t class_count = 10;
using ClassNames = std::array<std::string, class_count>;
using ConfusionCounts = std::array<std::array<int64_t, class_count>, class_count>;  // [true][said]

// The first 15 images (or all, if there are fewer), five in a row, each titled by its class.
Picture draw_sample_images(const std::vector<GreyImage>& images, const std::vector<uint8_t>& labels,
                           const ClassNames& class_names);

// counts[t][p]: how many images of class t were taken for class p.
Picture draw_confusion_matrix(const ConfusionCounts& counts, const ClassNames& class_names);

// How the loss fell: one loss for each update, over as many epochs. A curve of more points than can
// be told apart shows means of neighbours.
Picture draw_loss_curve(const std::vector<double>& losses, int64_t epochs);

// A photo and what the classifier gets to see of it, side by side at the same size, and below them
// what it takes it for.
Picture draw_before_after(const Picture& original, const GreyImage& transformed,
                          const std::string& verdict);

}  // namespace tessera_examples
