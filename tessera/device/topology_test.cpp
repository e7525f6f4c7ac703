#include "tessera/device/topology.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// spec: 2.2 useIpuId groups
TEST(Topology, EveryIdOfSixteenIpus) {
  const auto devices = all_devices(16);
  ASSERT_EQ(devices.size(), 31u);
  const struct {
    int64_t first_id, last_id, size;
  } rows[] = {{0, 15, 1}, {16, 23, 2}, {24, 27, 4}, {28, 29, 8}, {30, 30, 16}};
  for (const auto& row : rows) {
    for (int64_t id = row.first_id; id <= row.last_id; ++id) {
      const auto device = device_of_id(16, id);
      ASSERT_TRUE(device);
      EXPECT_EQ(device->id, id);
      EXPECT_EQ(device->ipus, (IpuGroup{(id - row.first_id) * row.size, row.size}));
    }
  }
  EXPECT_FALSE(device_of_id(16, 31));
  EXPECT_FALSE(device_of_id(16, -1));
}

TEST(Topology, OtherNumbersOfIpus) {
  EXPECT_TRUE(all_devices(0).empty());
  EXPECT_EQ(all_devices(1).size(), 1u);
  const auto of_six = all_devices(6);  // 6 single ones, 3 pairs, and one group of four
  ASSERT_EQ(of_six.size(), 10u);
  EXPECT_EQ(of_six[9].ipus, (IpuGroup{0, 4}));
  EXPECT_EQ(devices_of_size(6, 2).size(), 3u);
  EXPECT_EQ(devices_of_size(6, 2)[0].id, 6);
  EXPECT_TRUE(devices_of_size(6, 8).empty());
  EXPECT_TRUE(devices_of_size(6, 3).empty());
}

TEST(Topology, PowersOfTwo) {
  EXPECT_EQ(rounded_to_power_of_two(1), 1);
  EXPECT_EQ(rounded_to_power_of_two(3), 4);
  EXPECT_EQ(rounded_to_power_of_two(4), 4);
  EXPECT_EQ(rounded_to_power_of_two(33), 64);
}

TEST(Topology, NumberOfIpusComesFromTheEnvironment) {
  unsetenv("TESSERA_NUM_IPUS");
  EXPECT_EQ(num_virtual_ipus(), 16);
  setenv("TESSERA_NUM_IPUS", "4", 1);
  EXPECT_EQ(num_virtual_ipus(), 4);
  for (const char* wrong : {"x", "-1", "4.5", "5000", "99999999999999999999"}) {
    setenv("TESSERA_NUM_IPUS", wrong, 1);
    EXPECT_THROW(num_virtual_ipus(), Error) << wrong;
  }
  unsetenv("TESSERA_NUM_IPUS");
}

TEST(Topology, PlacesCountDownInMachinesOfFour) {
  EXPECT_EQ(place_of(16, 0).machine, "virtual-1");
  EXPECT_EQ(place_of(16, 0).number, 3);
  EXPECT_EQ(place_of(16, 3).number, 0);
  EXPECT_EQ(place_of(16, 15).machine, "virtual-4");
  EXPECT_EQ(place_of(16, 0).serial, place_of(16, 1).serial);
  EXPECT_NE(place_of(16, 1).serial, place_of(16, 2).serial);
  EXPECT_EQ(place_of(1, 0).number, 0);
}

}  // namespace
}  // namespace tessera
