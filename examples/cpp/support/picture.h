// Reads, writes and prepares pictures for the examples. Reading decides by content, not by name,
// and always yields 8-bit RGB; files are not trusted. Whatever goes wrong ends in a
// std::runtime_error of one sentence that names the file. Resizing and grey conversion follow the
// Python Imaging Library to the bit, so a network sees the same pixels as in the Python tutorial.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tessera_examples {

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // height x width x 3
};

struct GreyImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // height x width
};

inline constexpr int64_t max_picture_pixels = 100'000'000;

// Throws unless the size is positive and the bytes fit it; `use` ends the words "A picture to".
void check_picture(const Picture& picture, std::string_view use);

// PNG of any kind (transparency is laid over white) or JPEG, at most max_picture_pixels large.
Picture read_picture(const std::filesystem::path& path);

// Writes a neighbour file first and renames it, so `path` is either complete or as it was before.
void write_png(const Picture& picture, const std::filesystem::path& path);

// Bicubic; when shrinking, every source pixel counts (antialiasing).
Picture resize(const Picture& picture, int width, int height);

// ITU-R 601 luma.
GreyImage to_grey(const Picture& picture);

// The data set has black backgrounds: pixel (1, 1) above 200 means a light one, then all pixels
// are inverted. Needs at least 2 x 2 pixels.
GreyImage invert_if_light_background(GreyImage image);

// What the classifier wants of a photo: 28 x 28, grey, dark background, made in this order.
GreyImage prepare_clothing(const Picture& picture);

}  // namespace tessera_examples
