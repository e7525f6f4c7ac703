#include "examples/cpp/support/picture.h"

#include <gtest/gtest.h>
#include <png.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

// jpeglib.h uses FILE and size_t without including them, so it comes last.
// clang-format off
#include <jpeglib.h>
// clang-format on

namespace tessera_examples {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<uint8_t>;

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& failure) {
    return failure.what();
  }
  return "no error";
}

std::string read_error(const fs::path& path) {
  return message([&] { read_picture(path); });
}

uint32_t checksum(const Bytes& bytes) {
  return static_cast<uint32_t>(crc32(0, bytes.data(), static_cast<uInt>(bytes.size())));
}

// Anything but smooth, and cheap to make elsewhere for comparison.
Picture pattern(int width, int height) {
  Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        picture.rgb.push_back(static_cast<uint8_t>((x * 37 + y * 59 + c * 91 + x * y * 5) % 256));
      }
    }
  }
  return picture;
}

// A garment-like dark shape on a light ground.
Picture dark_on_light(int width, int height) {
  Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const bool ground = x < width / 4 || y < height / 4;
        picture.rgb.push_back(
            static_cast<uint8_t>(ground ? 255 - x % 16 - c : (x * 3 + y * 2 + c * 40) % 200));
      }
    }
  }
  return picture;
}

class PictureTest : public testing::Test {
 protected:
  PictureTest() {
    std::string name = (fs::temp_directory_path() / "picture_test_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    path_ = folder_ / "p";
  }
  ~PictureTest() override { fs::remove_all(folder_); }

  void put(const Bytes& content) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }

  Bytes get() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // A PNG of one kind. `row` holds the packed bytes of each row.
  void put_png(int width, int height, int colour_type, int depth, Bytes rows,
               bool interlaced = false, std::vector<png_color> palette = {},
               Bytes palette_alpha = {}) {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
                 depth, colour_type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (!palette.empty()) {
      png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    }
    if (!palette_alpha.empty()) {
      png_set_tRNS(png, info, palette_alpha.data(), static_cast<int>(palette_alpha.size()),
                   nullptr);
    }
    png_write_info(png, info);
    std::vector<png_bytep> starts;
    starts.reserve(static_cast<size_t>(height));
    const size_t stride = rows.size() / static_cast<size_t>(height);
    for (int y = 0; y < height; ++y) starts.push_back(&rows[static_cast<size_t>(y) * stride]);
    png_write_image(png, starts.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    std::fclose(file);
  }

  void put_jpeg(int width, int height, J_COLOR_SPACE space, int channels, Bytes pixels) {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = static_cast<JDIMENSION>(width);
    jpeg.image_height = static_cast<JDIMENSION>(height);
    jpeg.input_components = channels;
    jpeg.in_color_space = space;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
      JSAMPROW row = &pixels[jpeg.next_scanline * static_cast<size_t>(width * channels)];
      jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    std::fclose(file);
  }

  size_t file_count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
  fs::path path_;
};

TEST_F(PictureTest, WhatIsWrittenIsRead) {
  const Picture picture = pattern(33, 17);
  write_png(picture, path_);
  const Picture back = read_picture(path_);
  EXPECT_EQ(back.width, 33);
  EXPECT_EQ(back.height, 17);
  EXPECT_EQ(back.rgb, picture.rgb);
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PictureTest, WritingReplacesAnOldFile) {
  put({1, 2, 3});
  write_png(pattern(5, 5), path_);
  EXPECT_EQ(read_picture(path_).rgb, pattern(5, 5).rgb);
}

TEST_F(PictureTest, GreyPngs) {
  put_png(2, 1, PNG_COLOR_TYPE_GRAY, 8, {7, 200});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{7, 7, 7, 200, 200, 200}));
  put_png(3, 1, PNG_COLOR_TYPE_GRAY, 1, {0b10100000});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{255, 255, 255, 0, 0, 0, 255, 255, 255}));
  put_png(1, 1, PNG_COLOR_TYPE_GRAY, 16, {0x80, 0x80});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{128, 128, 128}));
}

TEST_F(PictureTest, SixteenBitColour) {
  put_png(1, 1, PNG_COLOR_TYPE_RGB, 16, {0xff, 0xff, 0x00, 0x00, 0x40, 0x40});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{255, 0, 64}));
}

TEST_F(PictureTest, PaletteWithTransparency) {
  put_png(3, 1, PNG_COLOR_TYPE_PALETTE, 8, {0, 1, 2}, false, {{10, 20, 30}, {0, 0, 0}, {4, 5, 6}},
          {255, 0});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{10, 20, 30, 255, 255, 255, 4, 5, 6}));
}

TEST_F(PictureTest, AlphaLiesOverWhite) {
  put_png(3, 1, PNG_COLOR_TYPE_RGBA, 8, {9, 8, 7, 255, 9, 8, 7, 0, 0, 100, 255, 128});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{9, 8, 7, 255, 255, 255, 127, 177, 255}));
  put_png(1, 2, PNG_COLOR_TYPE_GRAY_ALPHA, 8, {50, 0, 50, 255});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{255, 255, 255, 50, 50, 50}));
  put_png(1, 1, PNG_COLOR_TYPE_RGBA, 16, {1, 2, 3, 4, 5, 6, 0, 0});
  EXPECT_EQ(read_picture(path_).rgb, (Bytes{255, 255, 255}));
}

TEST_F(PictureTest, InterlacedPng) {
  const Picture picture = pattern(19, 23);
  put_png(19, 23, PNG_COLOR_TYPE_RGB, 8, picture.rgb, true);
  EXPECT_EQ(read_picture(path_).rgb, picture.rgb);
}

TEST_F(PictureTest, Jpegs) {
  Bytes pixels;
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), {250, 20, 60});
  put_jpeg(8, 8, JCS_RGB, 3, pixels);
  const Picture colour = read_picture(path_);
  EXPECT_EQ(colour.width, 8);
  EXPECT_NEAR(colour.rgb[0], 250, 2);
  EXPECT_NEAR(colour.rgb[1], 20, 2);
  EXPECT_NEAR(colour.rgb[2], 60, 2);
  put_jpeg(8, 8, JCS_GRAYSCALE, 1, Bytes(64, 99));
  EXPECT_EQ(read_picture(path_).rgb, Bytes(64 * 3, 99));
}

TEST_F(PictureTest, JpegWithFourInks) {
  Bytes pixels;  // as Adobe stores them: 255 is no ink
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), {255, 128, 0, 255});
  put_jpeg(8, 8, JCS_CMYK, 4, pixels);
  const Picture picture = read_picture(path_);
  EXPECT_NEAR(picture.rgb[0], 255, 2);
  EXPECT_NEAR(picture.rgb[1], 128, 2);
  EXPECT_NEAR(picture.rgb[2], 0, 2);
}

TEST_F(PictureTest, MissingAndForeignFiles) {
  EXPECT_EQ(read_error(path_),
            "The picture " + path_.string() + " does not exist; check the path.");
  EXPECT_EQ(read_error(folder_),
            "The picture " + folder_.string() + " is not a file; name a PNG or JPEG file.");
  const std::string foreign =
      "The picture " + path_.string() + " is neither PNG nor JPEG; convert it to one of them.";
  put({});
  EXPECT_EQ(read_error(path_), foreign);
  put({'G', 'I', 'F', '8', '9', 'a', 0, 0, 0, 0});
  EXPECT_EQ(read_error(path_), foreign);
}

TEST_F(PictureTest, TruncatedPngIsAnErrorWhereverItEnds) {
  write_png(pattern(9, 9), path_);
  const Bytes whole = get();
  for (size_t size = 8; size < whole.size(); ++size) {
    put({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_EQ(read_error(path_), "The PNG picture " + path_.string() +
                                     " is corrupt or truncated (the file ends early); use an "
                                     "intact copy.")
        << size;
  }
}

TEST_F(PictureTest, TruncatedJpegIsAnErrorWhereverItEnds) {
  put_jpeg(24, 24, JCS_RGB, 3, pattern(24, 24).rgb);
  const Bytes whole = get();
  for (size_t size = 3; size < whole.size(); ++size) {
    put({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_EQ(
        read_error(path_).find("The JPEG picture " + path_.string() + " is corrupt or truncated ("),
        0U)
        << size;
  }
}

TEST_F(PictureTest, EveryFlippedByteIsSafe) {
  for (bool png : {true, false}) {
    if (png) {
      write_png(pattern(9, 9), path_);
    } else {
      put_jpeg(16, 16, JCS_RGB, 3, pattern(16, 16).rgb);
    }
    const Bytes whole = get();
    for (size_t i = 0; i < whole.size(); ++i) {
      for (uint8_t flip : {0x01, 0x80, 0xff}) {
        Bytes bytes = whole;
        bytes[i] ^= flip;
        put(bytes);
        read_error(path_);  // an error or a picture with other colours, never a crash
      }
    }
  }
}

TEST_F(PictureTest, HugePngIsRefusedByItsHeader) {
  write_png(pattern(2, 2), path_);
  Bytes bytes = get();
  // The header chunk: width, height, five more bytes, then its checksum.
  for (size_t at : {16U, 20U}) {
    bytes[at + 2] = 0x4e;
    bytes[at + 3] = 0x20;  // 20000
  }
  const uint32_t sum = static_cast<uint32_t>(crc32(0, &bytes[12], 17));
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
  put(bytes);
  EXPECT_EQ(read_error(path_), "The picture " + path_.string() +
                                   " is 20000 x 20000 pixels but at most 100 megapixels are read; "
                                   "use a smaller one.");
}

TEST_F(PictureTest, HugeJpegIsRefusedByItsHeader) {
  put_jpeg(8, 8, JCS_RGB, 3, pattern(8, 8).rgb);
  Bytes bytes = get();
  const Bytes frame_marker = {0xff, 0xc0};
  auto frame = std::search(bytes.begin(), bytes.end(), frame_marker.begin(), frame_marker.end());
  ASSERT_NE(frame, bytes.end());
  for (int i = 5; i < 9; ++i) frame[i] = 0xc3;  // height and width 50115
  put(bytes);
  EXPECT_EQ(read_error(path_), "The picture " + path_.string() +
                                   " is 50115 x 50115 pixels but at most 100 megapixels are read; "
                                   "use a smaller one.");
}

TEST_F(PictureTest, WritingIntoMissingFolder) {
  const fs::path path = folder_ / "none" / "p.png";
  EXPECT_EQ(message([&] { write_png(pattern(2, 2), path); }),
            "Cannot write the picture " + path.string() + ": its folder " +
                (folder_ / "none").string() + " does not exist; create it first.");
}

TEST_F(PictureTest, WritingOverAFolder) {
  fs::create_directory(path_);
  EXPECT_EQ(message([&] { write_png(pattern(2, 2), path_); }),
            "Cannot write the picture " + path_.string() +
                ": Is a directory; choose a name for a new file.");
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PictureTest, FailedWritingLeavesTheOldFileAlone) {
  put({1, 2, 3});
  // A limit on file sizes stands in for a full disk: the write comes back short, then fails.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string text = message([&] { write_png(pattern(64, 64), path_); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text, "Cannot write the picture " + path_.string() +
                      ": File too large; free some space or choose another folder.");
  EXPECT_EQ(get(), (Bytes{1, 2, 3}));
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(PictureTest, WritingHalfAPicture) {
  EXPECT_EQ(message([&] {
              write_png(Picture{2, 2, {1, 2, 3}}, path_);
            }),
            "A picture to write needs a positive size and width x height x 3 bytes, but 2 x 2 with "
            "3 bytes came; fill it first.");
  EXPECT_EQ(file_count(), 0U);
}

// The expected numbers are those of the Python Imaging Library 9.4.

TEST(Resize, ShrinksWithAntialiasing) {
  EXPECT_EQ(resize(pattern(9, 7), 4, 3).rgb,
            (Bytes{78,  142, 126, 133, 131, 93,  123, 113, 143, 105, 138, 131,
                   153, 87,  131, 101, 140, 110, 121, 125, 132, 135, 118, 115,
                   118, 133, 110, 141, 141, 130, 125, 127, 121, 125, 134, 146}));
  EXPECT_EQ(checksum(resize(pattern(40, 50), 28, 28).rgb), 0xe8d12285);
}

TEST(Resize, GrowsAndMixes) {
  EXPECT_EQ(checksum(resize(pattern(3, 2), 50, 40).rgb), 0xadf64551);
  EXPECT_EQ(checksum(resize(pattern(40, 50), 13, 90).rgb), 0x4e7eb9a6);
  EXPECT_EQ(checksum(resize(pattern(400, 3), 1, 300).rgb), 0x712680fd);
}

TEST(Resize, SameSizeChangesNothing) {
  EXPECT_EQ(resize(pattern(12, 5), 12, 5).rgb, pattern(12, 5).rgb);
}

TEST(Resize, RefusesBadSizes) {
  EXPECT_EQ(message([] { resize(pattern(2, 2), 0, 5); }),
            "A picture cannot be resized to 0 x 5 pixels; both must be at least 1 and the product "
            "at most 100000000.");
  const int most = std::numeric_limits<int>::max();
  EXPECT_NE(message([&] { resize(pattern(2, 2), most, most); }), "no error");
  EXPECT_NE(message([] { resize(Picture{}, 2, 2); }), "no error");
}

TEST(Grey, WeighsColoursAsLuma) {
  const GreyImage grey = to_grey({4, 1, {255, 0, 0, 0, 255, 0, 0, 0, 255, 77, 77, 77}});
  EXPECT_EQ(grey.pixels, (Bytes{76, 150, 29, 77}));
}

TEST(Background, LightOnesAreInverted) {
  GreyImage image{2, 2, {1, 2, 3, 201}};
  EXPECT_EQ(invert_if_light_background(image).pixels, (Bytes{254, 253, 252, 54}));
  image.pixels[3] = 200;
  EXPECT_EQ(invert_if_light_background(image).pixels, (Bytes{1, 2, 3, 200}));
}

TEST(Background, NeedsTwoByTwo) {
  EXPECT_EQ(message([] {
              invert_if_light_background({1, 2, {1, 2}});
            }),
            "Judging a background needs an image of 2 x 2 pixels or more, but 1 x 2 with 2 bytes "
            "came; use a larger one.");
}

TEST(PrepareClothing, MatchesTheTutorial) {
  const GreyImage kept = prepare_clothing(pattern(40, 50));
  EXPECT_EQ(kept.width, 28);
  EXPECT_EQ(kept.height, 28);
  EXPECT_EQ(checksum(kept.pixels), 0xaac05d23);
  EXPECT_EQ(checksum(prepare_clothing(dark_on_light(90, 120)).pixels), 0xcc73dea0);
}

}  // namespace
}  // namespace tessera_examples
