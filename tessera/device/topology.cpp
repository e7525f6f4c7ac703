#include "tessera/device/topology.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr int64_t default_ipus = 16, most_ipus = 4096;
constexpr int64_t ipus_per_machine = 4, ipus_per_board = 2;

}  // namespace

int64_t num_virtual_ipus() {
  const char* value = std::getenv("TESSERA_NUM_IPUS");
  const std::string_view text = value ? value : "";
  if (text.empty()) return default_ipus;
  int64_t count = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  check(error == std::errc() && stop == end && count >= 0 && count <= most_ipus, ErrorKind::value,
        "TESSERA_NUM_IPUS must be the number of virtual IPUs, 0 or more and at most {}, got '{}'",
        most_ipus, text);
  return count;
}

std::vector<DeviceInfo> all_devices(int64_t num_ipus) {
  std::vector<DeviceInfo> devices;
  for (int64_t size = 1; size <= num_ipus; size *= 2) {
    for (int64_t first = 0; first + size <= num_ipus; first += size) {
      devices.push_back({static_cast<int64_t>(devices.size()), {first, size}});
    }
  }
  return devices;
}

std::vector<DeviceInfo> devices_of_size(int64_t num_ipus, int64_t size) {
  std::vector<DeviceInfo> devices = all_devices(num_ipus);
  std::erase_if(devices, [&](const DeviceInfo& device) { return device.ipus.count != size; });
  return devices;
}

std::optional<DeviceInfo> device_of_id(int64_t num_ipus, int64_t id) {
  const std::vector<DeviceInfo> devices = all_devices(num_ipus);
  if (id < 0 || id >= static_cast<int64_t>(devices.size())) return std::nullopt;
  return devices[static_cast<size_t>(id)];
}

int64_t rounded_to_power_of_two(int64_t count) {
  int64_t rounded = 1;
  while (rounded < count) rounded *= 2;
  return rounded;
}

IpuPlace place_of(int64_t num_ipus, int64_t ipu) {
  const int64_t machine = ipu / ipus_per_machine;
  const int64_t last = std::min(num_ipus, (machine + 1) * ipus_per_machine) - 1;
  const int64_t number = last - ipu;
  return {fmt::format("virtual-{}", machine + 1),
          fmt::format("0000.{:04}.{:07}", number / ipus_per_board + 1, machine + 1), number};
}

}  // namespace tessera
