// The file by which the processes of a user share the virtual IPUs. Each IPU has a piece of it: who
// has locked the piece has the IPU, and writes there who he is. A group is one lock over several
// pieces, which succeeds as a whole or not at all.
//
// The locks are POSIX record locks (fcntl, F_SETLK). They belong to the process: the kernel gives
// them back when it ends in any way, children do not inherit them, and it tells who has one. Locks
// of the other two kinds (flock, F_OFD_SETLK) belong to an open file, which forked children share:
// a loader's worker that outlives its parent would keep the parent's device. What they cost is
// that closing any descriptor of the file drops all locks of the process. So it is opened once in a
// process and never closed: see open(). Locks do not hold against the process itself, for which
// DeviceRegistry keeps a table.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/device/device_user.h"

namespace tessera {

class IpuLocks {
 public:
  // The file in the first of these folders that can be used; a folder that is not there is made.
  // With `shared_parent` a folder must be the user's own and nobody else may write there, as its
  // name can be known to others. Null, and why in `reason`, where there is none. The same file
  // gives the same object, always.
  static std::shared_ptr<IpuLocks> open(const std::vector<std::string>& folders, bool shared_parent,
                                        std::string& reason);

  // False where another process has one of them.
  bool try_lock(const IpuGroup& ipus);
  void unlock(const IpuGroup& ipus);

  // The process, other than this one, that has an IPU; nothing where none has. 0 where it is one
  // that cannot be seen from here (another container).
  std::optional<int64_t> holder(int64_t ipu) const;

  // What was written for an IPU when it was last taken. That it cannot be written, because the
  // disk is full, changes nothing else.
  void write(int64_t ipu, const DeviceUser& user);
  std::optional<DeviceUser> read(int64_t ipu) const;

  // False where somebody closed our descriptor, as programs do that leave their terminal, or
  // removed the file: the locks are gone then.
  bool is_whole() const;

  const std::string& path() const { return path_; }

 private:
  IpuLocks(int descriptor, std::string path);

  int descriptor_;
  std::string path_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace tessera
