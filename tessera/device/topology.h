// Which devices there are. The machine has so many virtual IPUs, and a device is one of them or a
// group: first each IPU by itself, then pairs of consecutive ones, then groups of four, and so on,
// numbered through. Of 16 IPUs the devices 0 to 15 are single, 16 to 23 pairs, 24 to 27 fours, 28
// and 29 eights, and 30 is all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// How many virtual IPUs this machine has, whether or not they are in use: 16, or what
// TESSERA_NUM_IPUS says. Error where that is no number from 0 to 4096.
int64_t num_virtual_ipus();

struct IpuGroup {
  int64_t first = 0, count = 0;

  bool overlaps(const IpuGroup& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
  bool operator==(const IpuGroup&) const = default;
};

struct DeviceInfo {
  int64_t id = 0;
  IpuGroup ipus;
};

// Of a machine with so many IPUs: all devices, those of one size, the one of an id.
std::vector<DeviceInfo> all_devices(int64_t num_ipus);
std::vector<DeviceInfo> devices_of_size(int64_t num_ipus, int64_t size);
std::optional<DeviceInfo> device_of_id(int64_t num_ipus, int64_t id);

// The smallest power of two that is not below `count`.
int64_t rounded_to_power_of_two(int64_t count);

// What is known about a virtual IPU: it stands for one of the second generation.
struct IpuFacts {
  int64_t version = 2;
  int64_t clock_mhz = 1330;
  int64_t tiles = 1472;
  int64_t bytes_per_tile = 638976;
  int64_t threads_per_tile = 6;
};

// Four IPUs are in one machine, the IPU-M, on two boards.
struct IpuPlace {
  std::string machine;  // "virtual-1"
  std::string serial;   // of the board
  int64_t number = 0;   // in its machine; counted down as ids count up
};
IpuPlace place_of(int64_t num_ipus, int64_t ipu);

}  // namespace tessera
