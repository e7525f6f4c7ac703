#include "tessera/launch/file_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

FilePipe::FilePipe() {
  check(pipe2(ends_, O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
}

FilePipe::~FilePipe() {
  close_reader();
  close_writer();
}

void FilePipe::close_end(int end) {
  if (ends_[end] >= 0) close(ends_[end]);
  ends_[end] = -1;
}

std::string FilePipe::take(size_t most_bytes) {
  std::string text;
  std::array<char, 4096> buffer;
  pollfd ready{ends_[0], POLLIN, 0};
  while (ends_[0] >= 0 && text.size() < most_bytes && poll(&ready, 1, 0) > 0) {
    const size_t wanted = std::min(buffer.size(), most_bytes - text.size());
    const ssize_t size = read(ends_[0], buffer.data(), wanted);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) close_reader();
    if (size > 0) text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(file, text.data(), text.size());
    if (size < 0 && errno == EAGAIN) {
      pollfd ready{file, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace tessera
