#include "tessera/base/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

bool write_pieces(int file, std::span<const std::string_view> pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](std::string_view piece) { return write_whole(file, piece); });
}

bool write_and_close(int file, std::span<const std::string_view> pieces, Sync sync) {
  if (file < 0) return false;
  if (write_pieces(file, pieces) && (sync == Sync::no || fsync(file) == 0)) {
    return close(file) == 0;
  }
  const int reason = errno;
  close(file);
  errno = reason;
  return false;
}

// The entry of a file in its folder is data of the folder. Not all file systems can sync one.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

}  // namespace

bool replace_file(const std::string& path, std::string_view bytes) {
  return replace_file(path, {&bytes, 1}, Sync::no);
}

bool replace_file(const std::string& path, std::span<const std::string_view> pieces, Sync sync) {
  if (is_stream(path)) {
    return write_and_close(open(path.c_str(), O_WRONLY | O_CLOEXEC), pieces, Sync::no);
  }
  const std::string unfinished = fmt::format("{}.{}.part", path, gettid());
  unlink(unfinished.c_str());  // of a thread of that number that was killed
  const int file = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool good =
      write_and_close(file, pieces, sync) && std::rename(unfinished.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (!good) unlink(unfinished.c_str());
  if (good && sync == Sync::yes) sync_folder_of(path);
  errno = reason;
  return good;
}

}  // namespace tessera
