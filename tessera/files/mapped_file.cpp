#include "tessera/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {
namespace {

class OpenFile {
 public:
  // Without waiting: a pipe has nobody at its other end.
  explicit OpenFile(const std::string& path)
      : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (number_ >= 0) close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail_to_read(const std::string& path, int reason) {
  fail(ErrorKind::value, "cannot read '{}': {}", path, std::strerror(reason));
}

constexpr size_t small = size_t{1} << 20;

std::vector<std::byte> read_whole(int file, size_t size, const std::string& path) {
  std::vector<std::byte> bytes(size);
  for (size_t done = 0; done < size;) {
    const ssize_t more = read(file, bytes.data() + done, size - done);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail_to_read(path, errno);
    check(more > 0, ErrorKind::value, "cannot read '{}': it became shorter meanwhile", path);
    done += static_cast<size_t>(more);
  }
  return bytes;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const OpenFile file(path);
  if (file.number() < 0) fail_to_read(path, errno);
  struct stat about {};
  if (fstat(file.number(), &about) != 0) fail_to_read(path, errno);
  check(!S_ISDIR(about.st_mode), ErrorKind::value, "cannot read '{}': it is a folder", path);
  check(S_ISREG(about.st_mode), ErrorKind::value, "cannot read '{}': it is no file", path);
  const auto size = static_cast<size_t>(about.st_size);
  if (size <= small) {
    read_ = read_whole(file.number(), size, path);
    bytes_ = read_;
    return;
  }
  void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (start == MAP_FAILED) fail_to_read(path, errno);
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (bytes_.size() > small) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tessera
