#include "tessera/device/ipu_locks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tessera {
namespace {

constexpr size_t piece = 512;  // bytes of the file for each IPU

struct flock lock_over(const IpuGroup& ipus, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(ipus.first) * static_cast<off_t>(piece);
  lock.l_len = static_cast<off_t>(ipus.count) * static_cast<off_t>(piece);
  return lock;
}

// All files that this process ever opened. Never given back: closing one would drop its locks.
std::vector<std::shared_ptr<IpuLocks>>& opened() {
  static auto* files = new std::vector<std::shared_ptr<IpuLocks>>;
  return *files;
}

// Why a folder cannot be used; empty where it can. It is made where it is missing.
std::string refusal(const std::string& folder, bool shared_parent) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return fmt::format("'{}' cannot be made: {}", folder, std::strerror(errno));
  }
  struct stat about;
  // Not through a link: somebody else may have put it there.
  if ((shared_parent ? lstat : stat)(folder.c_str(), &about) != 0) {
    return fmt::format("'{}' cannot be read: {}", folder, std::strerror(errno));
  }
  if (!S_ISDIR(about.st_mode)) return fmt::format("'{}' is no folder", folder);
  if (!shared_parent) return "";
  if (about.st_uid != geteuid()) return fmt::format("'{}' belongs to another user", folder);
  if (about.st_mode & (S_IWGRP | S_IWOTH)) {
    return fmt::format("'{}' can be written by other users", folder);
  }
  return "";
}

// Programs that tidy up /tmp (systemd-tmpfiles) leave alone what is in a folder with this lock.
// Children share it, which does no harm.
void keep_from_tidying(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0 && flock(descriptor, LOCK_SH | LOCK_NB) != 0) close(descriptor);
}

}  // namespace

IpuLocks::IpuLocks(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {
  struct stat about = {};
  fstat(descriptor_, &about);
  device_ = about.st_dev;
  inode_ = about.st_ino;
}

std::shared_ptr<IpuLocks> IpuLocks::open(const std::vector<std::string>& folders,
                                         bool shared_parent, std::string& reason) {
  for (const std::string& folder : folders) {
    std::string wrong = refusal(folder, shared_parent);
    const std::string path = folder + "/ipus";
    struct stat about;
    // Looked up without opening it: the descriptor would have to be closed again.
    if (wrong.empty() && stat(path.c_str(), &about) == 0) {
      for (const auto& file : opened()) {
        const bool same = file->device_ == about.st_dev && file->inode_ == about.st_ino;
        if (same && file->is_whole()) return file;
      }
    }
    if (wrong.empty()) {
      const int descriptor =
          ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
      if (descriptor >= 0 && fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode)) {
        keep_from_tidying(folder);
        opened().push_back(std::shared_ptr<IpuLocks>(new IpuLocks(descriptor, path)));
        return opened().back();
      }
      wrong = descriptor < 0 ? fmt::format("'{}' cannot be opened: {}", path, std::strerror(errno))
                             : fmt::format("'{}' is no file", path);
      if (descriptor >= 0) close(descriptor);
    }
    reason += (reason.empty() ? "" : ", and ") + wrong;
  }
  return nullptr;
}

bool IpuLocks::try_lock(const IpuGroup& ipus) {
  struct flock lock = lock_over(ipus, F_WRLCK);
  return fcntl(descriptor_, F_SETLK, &lock) == 0;
}

void IpuLocks::unlock(const IpuGroup& ipus) {
  if (!is_whole()) return;
  struct flock lock = lock_over(ipus, F_UNLCK);
  fcntl(descriptor_, F_SETLK, &lock);
}

std::optional<int64_t> IpuLocks::holder(int64_t ipu) const {
  struct flock lock = lock_over({ipu, 1}, F_WRLCK);
  if (fcntl(descriptor_, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid > 0 ? lock.l_pid : 0;
}

void IpuLocks::write(int64_t ipu, const DeviceUser& user) {
  std::string record = to_record(user, piece);
  record.resize(piece);
  const auto place = static_cast<off_t>(ipu) * static_cast<off_t>(piece);
  [[maybe_unused]] const ssize_t written = pwrite(descriptor_, record.data(), record.size(), place);
}

std::optional<DeviceUser> IpuLocks::read(int64_t ipu) const {
  std::array<char, piece> bytes;
  const auto place = static_cast<off_t>(ipu) * static_cast<off_t>(piece);
  const ssize_t count = pread(descriptor_, bytes.data(), bytes.size(), place);
  if (count <= 0) return std::nullopt;
  return from_record({bytes.data(), static_cast<size_t>(count)});
}

bool IpuLocks::is_whole() const {
  struct stat open_file, named;
  if (fstat(descriptor_, &open_file) != 0) return false;
  if (open_file.st_dev != device_ || open_file.st_ino != inode_) return false;
  if (stat(path_.c_str(), &named) != 0) return false;
  return named.st_dev == device_ && named.st_ino == inode_;
}

}  // namespace tessera
