#include "tessera/base/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tessera {
namespace {

bool write_whole(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool is_stream(const std::string& path) {
  struct stat there {};
  if (path.starts_with("/dev/")) return true;
  return stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
}

bool write_and_close(int file, std::string_view bytes) {
  if (file < 0) return false;
  if (write_whole(file, bytes)) return close(file) == 0;
  const int reason = errno;
  close(file);
  errno = reason;
  return false;
}

}  // namespace

bool replace_file(const std::string& path, std::string_view bytes) {
  if (is_stream(path)) return write_and_close(open(path.c_str(), O_WRONLY | O_CLOEXEC), bytes);
  const std::string unfinished = fmt::format("{}.{}.part", path, gettid());
  unlink(unfinished.c_str());  // of a thread of that number that was killed
  const int file = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool good =
      write_and_close(file, bytes) && std::rename(unfinished.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (!good) unlink(unfinished.c_str());
  errno = reason;
  return good;
}

}  // namespace tessera
