// A file as memory that cannot be written to: the system reads the pages that somebody looks at.
// Files of ours are replaced, never changed; one that another program cuts short while it is mapped
// would end the process. So small files, of which there are many in a cache, are read instead.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  std::vector<std::byte> read_;  // of a small file
  std::span<const std::byte> bytes_;
};

}  // namespace tessera
