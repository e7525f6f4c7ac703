#include "tessera/device/registry.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/device/ipu_locks.h"

namespace tessera {
namespace {

// What this process has. Locks in the file do not hold against it, this table does.
class DeviceRegistry {
 public:
  // Never destroyed: models may be, after everything else.
  static DeviceRegistry& instance() {
    static auto* registry = new DeviceRegistry;
    return *registry;
  }

  std::optional<std::pair<uint64_t, DeviceInfo>> try_acquire(std::span<const DeviceInfo> devices,
                                                             const std::string& purpose) {
    const std::lock_guard lock(mutex_);
    open();
    for (const DeviceInfo& device : devices) {
      if (is_taken(device.ipus)) continue;
      if (locks_ && !locks_->try_lock(device.ipus)) continue;
      DeviceUser user = this_process();
      user.purpose = purpose;
      user.device = device.id;
      user.ipus = device.ipus;
      if (locks_) announce(user);
      claims_[++last_ticket_] = {std::move(user), locks_};
      return std::pair{last_ticket_, device};
    }
    return std::nullopt;
  }

  bool is_held(uint64_t ticket) const {
    const std::lock_guard lock(mutex_);
    return claims_.contains(ticket);
  }

  void release(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = claims_.find(ticket);
    if (found == claims_.end()) return;  // its parent's
    if (found->second.locks) found->second.locks->unlock(found->second.user.ipus);
    claims_.erase(found);
  }

  std::vector<Attachment> attachments(int64_t num_ipus) {
    const std::lock_guard lock(mutex_);
    open();
    std::vector<Attachment> found;
    for (int64_t ipu = 0; ipu < num_ipus; ++ipu) {
      if (const DeviceUser* user = ours(ipu)) {
        found.push_back({ipu, true, *user});
      } else if (const auto pid = locks_ ? locks_->holder(ipu) : std::nullopt) {
        found.push_back({ipu, false, user_of(ipu, *pid)});
      }
    }
    return found;
  }

 private:
  struct Claim {
    DeviceUser user;
    std::shared_ptr<IpuLocks> locks;  // null where no folder can be used
  };

  DeviceRegistry() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().claims_.clear();
                     instance().mutex_.unlock();
                   });
  }

  // As it was when the process first looked: programs may go to another folder.
  std::string made_absolute(const std::string& named) {
    std::string& path = absolute_[named];
    if (path.empty()) path = std::filesystem::absolute(named);
    return path;
  }

  // The file that the environment names now.
  void open() {
    const char* named = std::getenv("TESSERA_DEVICE_DIR");
    const bool asked = named && *named;
    const std::string own = fmt::format("tessera-{}", geteuid());
    std::vector<std::string> folders{"/tmp/" + own, "/dev/shm/" + own};
    if (asked) folders = {made_absolute(named)};
    std::string reason;
    const auto before = std::exchange(locks_, IpuLocks::open(folders, !asked, reason));
    if (before && locks_ && !before->is_whole()) move_claims(before);
    check(locks_ || !asked, ErrorKind::value,
          "TESSERA_DEVICE_DIR must be a folder in which processes can share the virtual IPUs: {}",
          reason);
    if (locks_ || warned_) return;
    warned_ = true;
    log(LogLevel::warn,
        "virtual IPUs are not shared with other processes, which may use the same ones: {}; set "
        "TESSERA_DEVICE_DIR to a folder that can be written",
        reason);
  }

  // Somebody removed the file with our locks: what we have, we have in the new one.
  void move_claims(const std::shared_ptr<IpuLocks>& before) {
    for (auto& [ticket, claim] : claims_) {
      if (claim.locks != before || !locks_->try_lock(claim.user.ipus)) continue;
      claim.locks = locks_;
      announce(claim.user);
    }
  }

  bool is_taken(const IpuGroup& ipus) const {
    return std::any_of(claims_.begin(), claims_.end(), [&](const auto& claim) {
      return claim.second.locks == locks_ && claim.second.user.ipus.overlaps(ipus);
    });
  }

  const DeviceUser* ours(int64_t ipu) const {
    for (const auto& [ticket, claim] : claims_) {
      if (claim.locks == locks_ && claim.user.ipus.overlaps({ipu, 1})) return &claim.user;
    }
    return nullptr;
  }

  void announce(const DeviceUser& user) {
    for (int64_t i = 0; i < user.ipus.count; ++i) locks_->write(user.ipus.first + i, user);
  }

  // What the process wrote, unless it is what one before it wrote.
  DeviceUser user_of(int64_t ipu, int64_t pid) const {
    auto written = locks_->read(ipu);
    const bool fits = written && (pid == 0 || written->pid == pid);
    if (fits && written->ipus.overlaps({ipu, 1})) return *std::move(written);
    DeviceUser user = process_of(pid);
    user.device = ipu;
    user.ipus = {ipu, 1};
    return user;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<IpuLocks> locks_;
  std::map<uint64_t, Claim> claims_;
  std::map<std::string, std::string> absolute_;
  uint64_t last_ticket_ = 0;
  bool warned_ = false;
};

}  // namespace

bool Device::is_held() const { return ticket_ != 0 && DeviceRegistry::instance().is_held(ticket_); }

void Device::release() noexcept {
  if (ticket_ != 0) DeviceRegistry::instance().release(ticket_);
  ticket_ = 0;
}

std::optional<Device> try_acquire(std::span<const DeviceInfo> devices, const std::string& purpose) {
  const auto taken = DeviceRegistry::instance().try_acquire(devices, purpose);
  if (!taken) return std::nullopt;
  Device device;
  std::tie(device.ticket_, device.info_) = *taken;
  return device;
}

std::vector<Attachment> attachments(int64_t num_ipus) {
  return DeviceRegistry::instance().attachments(num_ipus);
}

}  // namespace tessera
