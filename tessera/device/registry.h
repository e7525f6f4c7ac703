// Takes virtual IPUs for this process and gives them back. Whoever has a Device has its IPUs for
// himself, among all processes of the user and among all models of this process, until he gives it
// back or the process ends in whatever way. A forked child has none of its parent's.
//
// Processes meet in a folder: TESSERA_DEVICE_DIR, or /tmp/tessera-<uid>, or where that cannot be
// used /dev/shm/tessera-<uid>. It is none that comes and goes with a login ($XDG_RUNTIME_DIR),
// since jobs outlive logins, and none that a variable moves ($TMPDIR), since all must find the
// same. Where TESSERA_DEVICE_DIR cannot be used that is an Error. Where none of the others can, a
// warning says so, and the process has the IPUs for itself: better than not to run at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/device_user.h"
#include "tessera/device/topology.h"

namespace tessera {

class Device {
 public:
  Device() = default;  // none
  ~Device() { release(); }
  Device(Device&& other) noexcept { swap(other); }
  Device& operator=(Device&& other) noexcept {
    release();
    swap(other);
    return *this;
  }

  // Whether this process has it. A child that was forked after it was taken has not: there it is
  // lost.
  bool is_held() const;
  bool is_lost() const { return ticket_ != 0 && !is_held(); }
  int64_t id() const { return info_.id; }
  const IpuGroup& ipus() const { return info_.ipus; }
  void release() noexcept;

 private:
  friend std::optional<Device> try_acquire(std::span<const DeviceInfo>, const std::string&);
  void swap(Device& other) noexcept {
    std::swap(ticket_, other.ticket_);
    std::swap(info_, other.info_);
  }

  uint64_t ticket_ = 0;
  DeviceInfo info_;
};

// The first of these devices of which nobody has an IPU; nothing where there is none. `purpose` is
// told to those who look who has it: "training model 'MLP'".
std::optional<Device> try_acquire(std::span<const DeviceInfo> devices, const std::string& purpose);

// Who has the IPUs of a machine with so many of them, a line for each IPU that is in use, by
// number.
struct Attachment {
  int64_t ipu = 0;
  bool is_ours = false;  // this process has it
  DeviceUser user;
};
std::vector<Attachment> attachments(int64_t num_ipus);

}  // namespace tessera
