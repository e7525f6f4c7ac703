#include <fcntl.h>
#include <fmt/format.h>
#include <png.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "examples/cpp/support/picture.h"

// jpeglib.h uses FILE and size_t without including them, so it comes last.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

namespace tessera_examples {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<uint8_t>;

constexpr int64_t max_file_bytes = 1'000'000'000;

Bytes read_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw std::runtime_error(
        fmt::format("The picture {} does not exist; check the path.", path.string()));
  }
  if (!fs::is_regular_file(status)) {
    throw std::runtime_error(
        fmt::format("The picture {} is not a file; name a PNG or JPEG file.", path.string()));
  }
  const auto size = fs::file_size(path, error);
  if (!error && size > max_file_bytes) {
    throw std::runtime_error(
        fmt::format("The picture {} has {} bytes but at most {} are read; use a smaller one.",
                    path.string(), size, max_file_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  Bytes bytes(error ? 0 : size);
  if (file) {
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  if (error || !file) {
    throw std::runtime_error(
        fmt::format("Cannot read the picture {}; check its permissions.", path.string()));
  }
  return bytes;
}

[[noreturn]] void fail_corrupt(const fs::path& path, std::string_view kind,
                               std::string_view reason) {
  throw std::runtime_error(
      fmt::format("The {} picture {} is corrupt or truncated ({}); use an intact copy.", kind,
                  path.string(), reason));
}

void check_size(int64_t width, int64_t height, const fs::path& path) {
  if (width < 1 || height < 1 || width > max_picture_pixels / height) {
    throw std::runtime_error(
        fmt::format("The picture {} is {} x {} pixels but at most {} megapixels are read; use a "
                    "smaller one.",
                    path.string(), width, height, max_picture_pixels / 1'000'000));
  }
}

uint8_t over_white(int value, int alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

// libpng and libjpeg report errors by longjmp, which must not skip a destructor. So the calls to
// them stand in functions that own nothing (the `try_` ones, which return false on an error), and
// everything with a destructor lives in their callers.

struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const uint8_t* next = nullptr;  // reading: the bytes left
  size_t left = 0;
  Bytes* out = nullptr;    // writing
  bool no_memory = false;  // writing: `out` could not grow
  char message[200] = "unknown error";
};

void on_png_error(png_structp png, png_const_charp text) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, sizeof(state->message), "%s", text);
  png_longjmp(png, 1);
}

void on_png_warning(png_structp, png_const_charp) {}  // harmless oddities of the file

void on_png_read(png_structp png, png_bytep out, size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->left) png_error(png, "the file ends early");
  std::memcpy(out, state->next, size);
  state->next += size;
  state->left -= size;
}

void on_png_write(png_structp png, png_bytep data, size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  try {
    state->out->insert(state->out->end(), data, data + size);
  } catch (const std::bad_alloc&) {
    state->no_memory = true;
  }
  if (state->no_memory) png_error(png, "out of memory");
}

struct PngReader : PngState {
  PngReader() {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, static_cast<PngState*>(this), on_png_error,
                                 on_png_warning);
    if (png) info = png_create_info_struct(png);
    if (!info) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

struct PngWriter : PngState {
  PngWriter() {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, static_cast<PngState*>(this), on_png_error,
                                  on_png_warning);
    if (png) info = png_create_info_struct(png);
    if (!info) {
      png_destroy_write_struct(&png, nullptr);
      throw std::bad_alloc();
    }
  }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
};

bool try_read_png_header(PngState& state) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_set_read_fn(state.png, &state, on_png_read);
  // Our own limit is on the product, with a better message.
  png_set_user_limits(state.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_read_info(state.png, state.info);
  return true;
}

// Asks for 8-bit RGB or RGBA whatever the file holds. Allocates rows, so the size comes first.
bool try_start_png_rows(PngState& state) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_set_expand(state.png);
  png_set_scale_16(state.png);
  png_set_gray_to_rgb(state.png);
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  return true;
}

bool try_read_png_rows(PngState& state, png_bytep* rows) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_read_image(state.png, rows);
  png_read_end(state.png, nullptr);
  return true;
}

bool try_write_png(PngState& state, const Picture& picture) {
  if (setjmp(png_jmpbuf(state.png))) return false;
  png_set_write_fn(state.png, &state, on_png_write, nullptr);
  png_set_IHDR(state.png, state.info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(state.png, state.info);
  const size_t stride = static_cast<size_t>(picture.width) * 3;
  for (int y = 0; y < picture.height; ++y) {
    png_write_row(state.png, picture.rgb.data() + static_cast<size_t>(y) * stride);
  }
  png_write_end(state.png, state.info);
  return true;
}

Picture read_png(const Bytes& bytes, const fs::path& path) {
  PngReader reader;
  reader.next = bytes.data();
  reader.left = bytes.size();
  if (!try_read_png_header(reader)) fail_corrupt(path, "PNG", reader.message);
  const int64_t width = png_get_image_width(reader.png, reader.info);
  const int64_t height = png_get_image_height(reader.png, reader.info);
  check_size(width, height, path);
  if (!try_start_png_rows(reader)) fail_corrupt(path, "PNG", reader.message);
  const int channels = png_get_channels(reader.png, reader.info);
  const size_t stride = png_get_rowbytes(reader.png, reader.info);
  if ((channels != 3 && channels != 4) || stride != static_cast<size_t>(width * channels)) {
    fail_corrupt(path, "PNG", "its pixel format is unknown");
  }

  Bytes pixels(stride * static_cast<size_t>(height));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * stride;
  if (!try_read_png_rows(reader, rows.data())) fail_corrupt(path, "PNG", reader.message);

  if (channels == 4) {
    const size_t count = static_cast<size_t>(width * height);
    for (size_t i = 0; i < count; ++i) {
      const int alpha = pixels[4 * i + 3];
      for (size_t c = 0; c < 3; ++c) pixels[3 * i + c] = over_white(pixels[4 * i + c], alpha);
    }
    pixels.resize(3 * count);
  }
  return {static_cast<int>(width), static_cast<int>(height), std::move(pixels)};
}

struct JpegState {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf on_error{};
  char message[JMSG_LENGTH_MAX] = "unknown error";
};

[[noreturn]] void on_jpeg_error(j_common_ptr jpeg) {
  auto* state = static_cast<JpegState*>(jpeg->client_data);
  jpeg->err->format_message(jpeg, state->message);
  std::longjmp(state->on_error, 1);
}

// libjpeg only warns where data are missing and paints grey there; for us that is an error. Other
// warnings, such as stray bytes between markers, leave the picture whole.
void on_jpeg_message(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      on_jpeg_error(jpeg);
    default:
      break;
  }
}

struct JpegReader : JpegState {
  JpegReader() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = on_jpeg_error;
    errors.emit_message = on_jpeg_message;
    jpeg.client_data = static_cast<JpegState*>(this);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
};

bool try_read_jpeg_header(JpegState& state, const uint8_t* bytes, size_t size) {
  if (setjmp(state.on_error)) return false;
  jpeg_create_decompress(&state.jpeg);
  jpeg_mem_src(&state.jpeg, bytes, size);
  jpeg_read_header(&state.jpeg, TRUE);
  const bool inks =
      state.jpeg.jpeg_color_space == JCS_CMYK || state.jpeg.jpeg_color_space == JCS_YCCK;
  state.jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(&state.jpeg);
  return true;
}

bool try_read_jpeg_rows(JpegState& state, uint8_t* pixels, size_t stride) {
  if (setjmp(state.on_error)) return false;
  jpeg_start_decompress(&state.jpeg);
  while (state.jpeg.output_scanline < state.jpeg.output_height) {
    JSAMPROW row = pixels + state.jpeg.output_scanline * stride;
    jpeg_read_scanlines(&state.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&state.jpeg);
  return true;
}

Picture read_jpeg(const Bytes& bytes, const fs::path& path) {
  JpegReader reader;
  if (!try_read_jpeg_header(reader, bytes.data(), bytes.size())) {
    fail_corrupt(path, "JPEG", reader.message);
  }
  const int64_t width = reader.jpeg.output_width;
  const int64_t height = reader.jpeg.output_height;
  check_size(width, height, path);
  const int64_t channels = reader.jpeg.out_color_components;
  Bytes pixels(static_cast<size_t>(width * height * channels));
  if (!try_read_jpeg_rows(reader, pixels.data(), static_cast<size_t>(width * channels))) {
    fail_corrupt(path, "JPEG", reader.message);
  }
  if (channels == 4) {
    // Files with four inks follow Adobe's habit: 255 means no ink, so the product is the colour.
    const size_t count = static_cast<size_t>(width * height);
    for (size_t i = 0; i < count; ++i) {
      const int key = pixels[4 * i + 3];
      for (size_t c = 0; c < 3; ++c) {
        pixels[3 * i + c] = static_cast<uint8_t>((pixels[4 * i + c] * key + 127) / 255);
      }
    }
    pixels.resize(3 * count);
  }
  return {static_cast<int>(width), static_cast<int>(height), std::move(pixels)};
}

// A new file beside the wanted one, removed again unless it gets renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) : target_(target) {
    static std::atomic<unsigned> serial{0};
    do {
      path_ = target;
      path_ += fmt::format(".{}-{}.tmp", getpid(), serial++);
      descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) fail("check the folder's permissions");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!renamed_) unlink(path_.c_str());
  }

  void write_all(const Bytes& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) fail("free some space or choose another folder");
      done += static_cast<size_t>(got);
    }
  }

  // Some file systems report a full disk only at close, so that is checked before the rename.
  void rename_to_target() {
    if (close(std::exchange(descriptor_, -1)) != 0)
      fail("free some space or choose another folder");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) fail("choose a name for a new file");
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail(std::string_view advice) const {
    const int code = errno;  // before anything else can change it
    throw std::runtime_error(fmt::format("Cannot write the picture {}: {}; {}.", target_.string(),
                                         std::generic_category().message(code), advice));
  }

  fs::path target_;
  fs::path path_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

}  // namespace

Picture read_picture(const fs::path& path) {
  const Bytes bytes = read_file(path);
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) return read_png(bytes, path);
  if (bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff) {
    return read_jpeg(bytes, path);
  }
  throw std::runtime_error(fmt::format(
      "The picture {} is neither PNG nor JPEG; convert it to one of them.", path.string()));
}

void write_png(const Picture& picture, const fs::path& path) {
  check_picture(picture, "write");
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored)) {
    throw std::runtime_error(
        fmt::format("Cannot write the picture {}: its folder {} does not exist; create it first.",
                    path.string(), folder.string()));
  }
  Bytes encoded;
  PngWriter writer;
  writer.out = &encoded;
  if (!try_write_png(writer, picture)) {
    throw std::runtime_error(
        fmt::format("Cannot encode the picture {} of {} x {} pixels: {}; make it smaller.",
                    path.string(), picture.width, picture.height, writer.message));
  }
  TemporaryFile file(path);
  file.write_all(encoded);
  file.rename_to_target();
}

}  // namespace tessera_examples
