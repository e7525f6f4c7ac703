// A pipe between processes. Both ends are closed in programs that a child becomes, unless it is
// given one as its own.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

class FilePipe {
 public:
  FilePipe();
  ~FilePipe();
  FilePipe(const FilePipe&) = delete;
  FilePipe& operator=(const FilePipe&) = delete;

  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }

  // What has come, without waiting, and at most so many bytes; empty where nothing has. At the end
  // the reader is closed.
  std::string take(size_t most_bytes);
  bool is_at_end() const { return ends_[0] < 0; }

 private:
  void close_end(int end);
  int ends_[2];
};

// All of the text, however long that takes. False where nobody can read it any more.
bool write_all(int file, std::string_view text);

}  // namespace tessera
