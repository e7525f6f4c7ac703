// Reads Fashion-MNIST as Debian's package dataset-fashion-mnist ships it: idx files, gzipped or
// plain. The files are not trusted: every size is checked before it is used, memory grows only with
// bytes that really arrive, and whatever is wrong ends in a std::runtime_error of one sentence that
// names the file. A returned set is complete: one label in 0..9 for every image.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "examples/cpp/support/picture.h"

namespace tessera_examples {

enum class Split { train, test };

struct ImageSet {
  int64_t count = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> pixels;  // count x rows x cols, one byte each
  std::vector<uint8_t> labels;  // count
};

// $TESSERA_FASHION_MNIST if it is set and not empty, else where the Debian package puts the files.
std::filesystem::path default_data_folder();

// In each pair of names the gzipped file is preferred: "train-images-idx3-ubyte.gz", then without
// ".gz"; the same for "t10k-..." (test) and for the labels.
ImageSet read_image_set(const std::filesystem::path& folder, Split split);

// A copy of one image. Throws std::out_of_range unless 0 <= index < set.count.
GreyImage image_at(const ImageSet& set, int64_t index);

}  // namespace tessera_examples
