#include "examples/cpp/support/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tessera_examples {
namespace {

namespace fs = std::filesystem;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string images_file(uint32_t count, uint32_t rows, uint32_t cols, size_t bytes) {
  std::string file = big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(cols);
  for (size_t i = 0; i < bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::string labels_file(uint32_t count, const std::string& labels) {
  return big_endian(0x801) + big_endian(count) + labels;
}

std::string gzip(const std::string& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxTest : public testing::Test {
 protected:
  IdxTest() {
    std::string name = (fs::temp_directory_path() / "idx_test_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    put("train-images-idx3-ubyte", images_file(3, 2, 4, 24));
    put("train-labels-idx1-ubyte", labels_file(3, {'\x09', '\x00', '\x05'}));
  }
  ~IdxTest() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }

  // The whole message, with the folder's name taken out.
  std::string error() {
    try {
      read_image_set(folder_, Split::train);
    } catch (const std::runtime_error& failure) {
      std::string text = failure.what();
      for (size_t at; (at = text.find(folder_.string())) != std::string::npos;) {
        text.replace(at, folder_.string().size(), "F");
      }
      return text;
    }
    return "no error";
  }

  fs::path folder_;
};

constexpr const char* fresh =
    "; reinstall the package dataset-fashion-mnist or point --data at an intact copy.";
constexpr const char* get_it =
    ": 'apt-get install dataset-fashion-mnist' provides it, and --data or the environment variable "
    "TESSERA_FASHION_MNIST sets the folder.";

void expect_good(const ImageSet& set) {
  EXPECT_EQ(set.count, 3);
  EXPECT_EQ(set.rows, 2);
  EXPECT_EQ(set.cols, 4);
  ASSERT_EQ(set.pixels.size(), 24U);
  EXPECT_EQ(set.pixels[23], 23);
  EXPECT_EQ(set.labels, (std::vector<uint8_t>{9, 0, 5}));
}

TEST_F(IdxTest, ReadsPlainFiles) { expect_good(read_image_set(folder_, Split::train)); }

TEST_F(IdxTest, ReadsAndPrefersGzip) {
  put("train-images-idx3-ubyte.gz", gzip(images_file(3, 2, 4, 24)));
  put("train-labels-idx1-ubyte.gz", gzip(labels_file(3, {'\x09', '\x00', '\x05'})));
  put("train-images-idx3-ubyte", "nonsense");
  expect_good(read_image_set(folder_, Split::train));
}

TEST_F(IdxTest, OneImageCanBeTaken) {
  const ImageSet set = read_image_set(folder_, Split::train);
  const GreyImage image = image_at(set, 2);
  EXPECT_EQ(image.width, 4);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_THROW(image_at(set, 3), std::out_of_range);
  EXPECT_THROW(image_at(set, -1), std::out_of_range);
}

TEST_F(IdxTest, MissingFolder) {
  fs::remove_all(folder_);
  EXPECT_EQ(error(), std::string("Fashion-MNIST's folder F does not exist") + get_it);
}

TEST_F(IdxTest, MissingFile) {
  fs::remove(folder_ / "train-labels-idx1-ubyte");
  EXPECT_EQ(error(), std::string("Fashion-MNIST's file train-labels-idx1-ubyte.gz is not in folder "
                                 "F") +
                         get_it);
}

TEST_F(IdxTest, FolderInPlaceOfFile) {
  fs::remove(folder_ / "train-labels-idx1-ubyte");
  fs::create_directory(folder_ / "train-labels-idx1-ubyte");
  EXPECT_NE(error().find("is not in folder"), std::string::npos);
}

TEST_F(IdxTest, BadMagic) {
  put("train-images-idx3-ubyte", labels_file(3, std::string(20, '\x01')));
  EXPECT_EQ(error(),
            std::string("F/train-images-idx3-ubyte is not an idx file of images: it should "
                        "begin with 0x00000803 but begins with 0x00000801") +
                fresh);
}

TEST_F(IdxTest, TruncatedHeader) {
  put("train-images-idx3-ubyte", "");
  EXPECT_EQ(error(),
            std::string("F/train-images-idx3-ubyte is truncated: its header needs 16 bytes "
                        "but only 0 came") +
                fresh);
}

TEST_F(IdxTest, TruncatedData) {
  put("train-images-idx3-ubyte", images_file(3, 2, 4, 23));
  EXPECT_EQ(error(), std::string("F/train-images-idx3-ubyte is truncated: its header promises 24 "
                                 "bytes of data but only 23 came") +
                         fresh);
}

TEST_F(IdxTest, TruncatedGzip) {
  const std::string whole = gzip(images_file(3, 2, 4, 24));
  for (size_t size = 2; size < whole.size() - 8; ++size) {
    put("train-images-idx3-ubyte.gz", whole.substr(0, size));
    EXPECT_NE(error().find("is truncated"), std::string::npos) << size << ": " << error();
  }
}

TEST_F(IdxTest, GzipWithoutItsChecksum) {
  const std::string whole = gzip(images_file(3, 2, 4, 24));
  std::string wanted = "F/train-images-idx3-ubyte.gz is truncated: its gzip stream does not end";
  wanted += fresh;
  for (size_t size = whole.size() - 8; size < whole.size(); ++size) {
    put("train-images-idx3-ubyte.gz", whole.substr(0, size));
    EXPECT_EQ(error(), wanted) << size;
  }
}

TEST_F(IdxTest, TrailingGarbage) {
  const std::string wanted =
      std::string(" has extra bytes after the 24 bytes of data its header promises") + fresh;
  put("train-images-idx3-ubyte", images_file(3, 2, 4, 25));
  EXPECT_EQ(error(), "F/train-images-idx3-ubyte" + wanted);
  put("train-images-idx3-ubyte.gz", gzip(images_file(3, 2, 4, 25)));
  EXPECT_EQ(error(), "F/train-images-idx3-ubyte.gz" + wanted);
  put("train-images-idx3-ubyte.gz", gzip(images_file(3, 2, 4, 24)) + "x");
  EXPECT_EQ(error(), "F/train-images-idx3-ubyte.gz" + wanted);
}

TEST_F(IdxTest, AbsurdSizes) {
  put("train-images-idx3-ubyte", images_file(0xffffffff, 0xffffffff, 0xffffffff, 1));
  EXPECT_EQ(error(), std::string("F/train-images-idx3-ubyte claims 4294967295 images, but 1 to "
                                 "1000000 can be right") +
                         fresh);
  put("train-images-idx3-ubyte", images_file(0, 2, 4, 0));
  EXPECT_NE(error().find("claims 0 images"), std::string::npos);
  put("train-images-idx3-ubyte", images_file(3, 0, 4, 0));
  EXPECT_NE(error().find("claims 0 pixel rows per image"), std::string::npos);
  put("train-images-idx3-ubyte", images_file(3, 2, 5000, 0));
  EXPECT_NE(error().find("claims 5000 pixel columns per image"), std::string::npos);
  put("train-images-idx3-ubyte", images_file(1'000'000, 1024, 1024, 10));
  EXPECT_NE(error().find("claims 1048576000000 bytes of pixels"), std::string::npos);
}

TEST_F(IdxTest, CountsDiffer) {
  put("train-labels-idx1-ubyte", labels_file(2, std::string(2, '\x01')));
  EXPECT_EQ(error(),
            "F/train-labels-idx1-ubyte holds 2 labels but F/train-images-idx3-ubyte holds 3 "
            "images; use two files of one set.");
}

TEST_F(IdxTest, LabelOutOfRange) {
  put("train-labels-idx1-ubyte", labels_file(3, {'\x09', '\x0a', '\x05'}));
  EXPECT_EQ(error(), std::string("F/train-labels-idx1-ubyte has label 10 at position 1, but labels "
                                 "are 0 to 9") +
                         fresh);
}

TEST_F(IdxTest, CorruptGzip) {
  std::string bytes = gzip(images_file(3, 2, 4, 24));
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  put("train-images-idx3-ubyte.gz", bytes);
  EXPECT_EQ(error(),
            std::string("F/train-images-idx3-ubyte.gz is corrupt gzip data (incorrect data "
                        "check)") +
                fresh);
}

TEST_F(IdxTest, EveryFlippedByteIsSafe) {
  const std::string whole = gzip(images_file(3, 2, 4, 24));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= 0x55;
    put("train-images-idx3-ubyte.gz", bytes);
    error();  // an error or, in the gzip header's time stamp, none; never a crash
  }
}

TEST_F(IdxTest, EnvironmentNamesTheFolder) {
  const char* before = std::getenv("TESSERA_FASHION_MNIST");
  const std::string saved = before ? before : "";
  setenv("TESSERA_FASHION_MNIST", folder_.c_str(), 1);
  EXPECT_EQ(default_data_folder(), folder_);
  setenv("TESSERA_FASHION_MNIST", "", 1);
  EXPECT_EQ(default_data_folder(), "/usr/share/datasets/fashion-mnist");
  unsetenv("TESSERA_FASHION_MNIST");
  EXPECT_EQ(default_data_folder(), "/usr/share/datasets/fashion-mnist");
  if (before) setenv("TESSERA_FASHION_MNIST", saved.c_str(), 1);
}

TEST(Idx, ReadsTheRealData) {
  if (!fs::exists(default_data_folder())) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const ImageSet set = read_image_set(default_data_folder(), Split::test);
  EXPECT_EQ(set.count, 10'000);
  EXPECT_EQ(set.rows, 28);
  EXPECT_EQ(set.cols, 28);
  EXPECT_EQ(set.labels[0], 9);  // an ankle boot
}

}  // namespace
}  // namespace tessera_examples
