// Who uses a device: what gc-monitor shows, and what an error says about a device that is busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/device/topology.h"

namespace tessera {

struct DeviceUser {
  int64_t pid = 0;           // 0 where it is not known
  std::string command = {};  // of the process, with its arguments
  std::string user = {};
  std::string purpose = {};  // "training model 'MLP'"
  int64_t since = 0;         // when it took the device, in seconds since 1970
  int64_t device = 0;        // the device's id
  IpuGroup ipus = {};
};

// This process, as far as it is known without a device.
DeviceUser this_process();
// Another one, as far as the system tells: command and user, which are empty where it does not.
DeviceUser process_of(int64_t pid);

// A text of at most `size` bytes, for which the command is cut where it must be; and back. Nothing
// for bytes that are no such text, also half of one.
std::string to_record(const DeviceUser& user, size_t size);
std::optional<DeviceUser> from_record(std::string_view bytes);

// "13s", "2m5s", "3h4m", "2d1h".
std::string spoken_duration(int64_t seconds);

}  // namespace tessera
