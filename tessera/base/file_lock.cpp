#include "tessera/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds pause(10);

// The owner before us may have removed it between our opening and our locking it: then those who
// come later make another.
bool is_at(int file, const std::string& path) {
  struct stat ours {
  }, there{};
  return fstat(file, &ours) == 0 && stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace

FileLock::FileLock(std::string path, std::chrono::milliseconds patience,
                   const std::function<void()>& poll)
    : path_(std::move(path)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (Try result = try_once(); result != Try::got; result = try_once()) {
    if (result == Try::impossible) return;
    if (result == Try::gone) continue;
    waited_ = true;
    timed_out_ = std::chrono::steady_clock::now() >= deadline;
    if (timed_out_) return;
    if (poll) poll();
    std::this_thread::sleep_for(pause);
  }
}

FileLock::Try FileLock::try_once() {
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return Try::impossible;
  const bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
  const int reason = errno;
  if (locked && is_at(file, path_)) {
    file_ = file;
    return Try::got;
  }
  close(file);
  if (locked) return Try::gone;
  return reason == EWOULDBLOCK || reason == EINTR ? Try::busy : Try::impossible;
}

FileLock::~FileLock() {
  if (file_ < 0) return;
  unlink(path_.c_str());
  flock(file_, LOCK_UN);  // children that were forked meanwhile have the same file open
  close(file_);
}

}  // namespace tessera
