// A file as memory that cannot be written to: the system reads the pages that somebody looks at.
// What other programs do to the file meanwhile is seen; files of ours are replaced, never changed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tessera {

class MappedFile {
 public:
  // Error where the file cannot be read or is none: a folder, a device, a pipe.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tessera
