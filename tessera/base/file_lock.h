// A lock that threads and processes share through a file. The kernel gives it back when its owner
// ends, in whatever way, and the file is removed with it: none stays behind but that of an owner
// that was killed, which the next one takes over.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tessera {

class FileLock {
 public:
  // Waits for the lock, at most so long, and calls `poll` meanwhile, which may throw. Where the
  // file cannot be made, or its file system has no locks, nobody waits.
  FileLock(std::string path, std::chrono::milliseconds patience,
           const std::function<void()>& poll = {});
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool is_held() const { return file_ >= 0; }
  bool waited() const { return waited_; }        // somebody else had it
  bool timed_out() const { return timed_out_; }  // ... and did not give it back

 private:
  enum class Try { got, busy, gone, impossible };
  Try try_once();

  std::string path_;
  int file_ = -1;
  bool waited_ = false, timed_out_ = false;
};

}  // namespace tessera
