#include "examples/cpp/support/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace tessera_examples {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t images_magic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t labels_magic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint32_t max_count = 1'000'000;
constexpr uint32_t max_side = 1024;
constexpr uint64_t max_bytes = 1'000'000'000;
constexpr uint8_t label_kinds = 10;

constexpr std::string_view where_to_get_it =
    "'apt-get install dataset-fashion-mnist' provides it, and --data or the environment variable "
    "TESSERA_FASHION_MNIST sets the folder";

constexpr std::string_view get_a_fresh_copy =
    "reinstall the package dataset-fashion-mnist or point --data at an intact copy";

// The bytes of one file, unpacked if they are gzip. Opening fails unless the file can be read.
class ByteSource {
 public:
  explicit ByteSource(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) {
      throw std::runtime_error(
          fmt::format("Cannot open {} for reading; check its permissions.", path.string()));
    }
    refill();
    gzip_ = stream_.avail_in >= 2 && input_[0] == 0x1f && input_[1] == 0x8b;
    // 16 asks zlib for the gzip wrapper, whose checksum then guards the whole content.
    if (gzip_ && inflateInit2(&stream_, 15 + 16) != Z_OK) {
      throw std::runtime_error(
          fmt::format("zlib could not start reading {}; free some memory.", path.string()));
    }
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ~ByteSource() {
    if (gzip_) inflateEnd(&stream_);
  }

  // Fills at most `size` bytes and returns how many; fewer than `size` only at the end.
  size_t read(uint8_t* out, size_t size) {
    size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) refill();
      size_t got = gzip_ ? unpack(out + done, size - done) : copy(out + done, size - done);
      if (got == 0 && (ended_ || stream_.avail_in == 0)) break;
      done += got;
    }
    return done;
  }

  enum class End { clean, missing, more };

  // What follows the bytes read so far: nothing, nothing although the gzip stream should go on to
  // its checksum, or more bytes, be it content or something behind the gzip stream.
  End end() {
    uint8_t extra = 0;
    if (read(&extra, 1) != 0) return End::more;
    if (gzip_ && !ended_) return End::missing;
    if (stream_.avail_in == 0) refill();
    return stream_.avail_in == 0 ? End::clean : End::more;
  }

 private:
  void refill() {
    file_.read(reinterpret_cast<char*>(input_.data()), static_cast<std::streamsize>(input_.size()));
    if (file_.bad()) {
      throw std::runtime_error(
          fmt::format("Reading {} failed; check the disk it is on.", path_.string()));
    }
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(file_.gcount());
  }

  size_t copy(uint8_t* out, size_t size) {
    size_t count = std::min<size_t>(size, stream_.avail_in);
    std::copy_n(stream_.next_in, count, out);
    stream_.next_in += count;
    stream_.avail_in -= static_cast<uInt>(count);
    return count;
  }

  size_t unpack(uint8_t* out, size_t size) {
    if (ended_) return 0;
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1U << 20));
    const uInt room = stream_.avail_out;
    int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw std::runtime_error(fmt::format("{} is corrupt gzip data ({}); {}.", path_.string(),
                                           stream_.msg ? stream_.msg : "unknown zlib error",
                                           get_a_fresh_copy));
    }
    return room - stream_.avail_out;
  }

  fs::path path_;
  std::ifstream file_;
  std::array<uint8_t, 1 << 16> input_{};
  z_stream stream_{};
  bool gzip_ = false;
  bool ended_ = false;  // the gzip stream is complete and its checksum was right
};

fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const fs::path& path : {folder / (name + ".gz"), folder / name}) {
    if (fs::is_regular_file(path, ignored)) return path;
  }
  throw std::runtime_error(fmt::format("Fashion-MNIST's file {}.gz is not in folder {}: {}.", name,
                                       folder.string(), where_to_get_it));
}

// Reads big-endian 32-bit header fields.
template <size_t N>
std::array<uint32_t, N> read_header(ByteSource& source, const fs::path& path) {
  std::array<uint8_t, 4 * N> bytes{};
  size_t got = source.read(bytes.data(), bytes.size());
  if (got != bytes.size()) {
    throw std::runtime_error(
        fmt::format("{} is truncated: its header needs {} bytes but only {} came; {}.",
                    path.string(), bytes.size(), got, get_a_fresh_copy));
  }
  std::array<uint32_t, N> fields{};
  for (size_t i = 0; i < bytes.size(); ++i) fields[i / 4] = fields[i / 4] << 8 | bytes[i];
  return fields;
}

void check_magic(uint32_t magic, uint32_t wanted, std::string_view what, const fs::path& path) {
  if (magic == wanted) return;
  throw std::runtime_error(
      fmt::format("{} is not an idx file of {}: it should begin with 0x{:08x} but begins with "
                  "0x{:08x}; {}.",
                  path.string(), what, wanted, magic, get_a_fresh_copy));
}

void check_range(uint64_t value, uint64_t limit, std::string_view what, const fs::path& path) {
  if (value >= 1 && value <= limit) return;
  throw std::runtime_error(fmt::format("{} claims {} {}, but 1 to {} can be right; {}.",
                                       path.string(), value, what, limit, get_a_fresh_copy));
}

// Grows step by step, so that a header's claim alone cannot make us allocate what never comes.
std::vector<uint8_t> read_body(ByteSource& source, uint64_t size, const fs::path& path) {
  constexpr uint64_t step = 1 << 20;
  std::vector<uint8_t> bytes;
  while (bytes.size() < size) {
    size_t before = bytes.size();
    size_t wanted = static_cast<size_t>(std::min(step, size - before));
    bytes.resize(before + wanted);
    size_t got = source.read(bytes.data() + before, wanted);
    if (got != wanted) {
      throw std::runtime_error(
          fmt::format("{} is truncated: its header promises {} bytes of data but only {} came; {}.",
                      path.string(), size, before + got, get_a_fresh_copy));
    }
  }
  switch (source.end()) {
    case ByteSource::End::missing:
      throw std::runtime_error(fmt::format("{} is truncated: its gzip stream does not end; {}.",
                                           path.string(), get_a_fresh_copy));
    case ByteSource::End::more:
      throw std::runtime_error(
          fmt::format("{} has extra bytes after the {} bytes of data its header promises; {}.",
                      path.string(), size, get_a_fresh_copy));
    case ByteSource::End::clean:
      break;
  }
  return bytes;
}

void read_images(const fs::path& path, ImageSet& set) {
  ByteSource source(path);
  auto [magic, count, rows, cols] = read_header<4>(source, path);
  check_magic(magic, images_magic, "images", path);
  check_range(count, max_count, "images", path);
  check_range(rows, max_side, "pixel rows per image", path);
  check_range(cols, max_side, "pixel columns per image", path);
  const uint64_t bytes = uint64_t{count} * rows * cols;
  check_range(bytes, max_bytes, "bytes of pixels", path);
  set.count = count;
  set.rows = rows;
  set.cols = cols;
  set.pixels = read_body(source, bytes, path);
}

void read_labels(const fs::path& path, const fs::path& images_path, ImageSet& set) {
  ByteSource source(path);
  auto [magic, count] = read_header<2>(source, path);
  check_magic(magic, labels_magic, "labels", path);
  check_range(count, max_count, "labels", path);
  if (count != set.count) {
    throw std::runtime_error(
        fmt::format("{} holds {} labels but {} holds {} images; use two files of one set.",
                    path.string(), count, images_path.string(), set.count));
  }
  set.labels = read_body(source, count, path);
  auto bad = std::find_if(set.labels.begin(), set.labels.end(),
                          [](uint8_t label) { return label >= label_kinds; });
  if (bad != set.labels.end()) {
    throw std::runtime_error(fmt::format(
        "{} has label {} at position {}, but labels are 0 to {}; "
        "{}.",
        path.string(), *bad, bad - set.labels.begin(), label_kinds - 1, get_a_fresh_copy));
  }
}

}  // namespace

fs::path default_data_folder() {
  const char* chosen = std::getenv("TESSERA_FASHION_MNIST");
  return chosen && *chosen ? chosen : "/usr/share/datasets/fashion-mnist";
}

ImageSet read_image_set(const fs::path& folder, Split split) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw std::runtime_error(fmt::format("Fashion-MNIST's folder {} does not exist: {}.",
                                         folder.string(), where_to_get_it));
  }
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const fs::path images_path = find_file(folder, prefix + "-images-idx3-ubyte");
  const fs::path labels_path = find_file(folder, prefix + "-labels-idx1-ubyte");
  ImageSet set;
  read_images(images_path, set);
  read_labels(labels_path, images_path, set);
  return set;
}

GreyImage image_at(const ImageSet& set, int64_t index) {
  if (index < 0 || index >= set.count) {
    throw std::out_of_range(fmt::format("Image {} was asked for, but the set has images 0 to {}.",
                                        index, set.count - 1));
  }
  const int64_t size = set.rows * set.cols;
  const auto begin = set.pixels.begin() + index * size;
  return {static_cast<int>(set.cols), static_cast<int>(set.rows), {begin, begin + size}};
}

}  // namespace tessera_examples
