#include "tessera/launch/placement.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

std::string message_of(const std::vector<std::string>& hosts, int64_t instances, int64_t replicas) {
  try {
    place_instances(hosts, instances, replicas);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

// spec: 8.3 num-replicas, 8.3 num-instances
TEST(Placement, ReplicasAreDividedEvenly) {
  const std::vector<Instance> placed = place_instances({"here"}, 2, 6);
  ASSERT_EQ(placed.size(), 2u);
  EXPECT_EQ(placed[1], (Instance{1, "here", 1, 2, 3, 3}));
  EXPECT_EQ(message_of({"here"}, 2, 3),
            "--num-replicas 3 cannot be divided evenly over 2 instances; take a multiple of 2");
  EXPECT_NE(message_of({"here"}, 2, 1), "");
}

// spec: 8.3 host
TEST(Placement, InstancesFillHostAfterHost) {
  const std::vector<Instance> placed = place_instances({"a", "b", "c"}, 5, 10);
  ASSERT_EQ(placed.size(), 5u);
  EXPECT_EQ(placed[1], (Instance{1, "a", 1, 2, 2, 2}));
  EXPECT_EQ(placed[2], (Instance{2, "b", 0, 2, 4, 2}));
  EXPECT_EQ(placed[4], (Instance{4, "c", 0, 1, 8, 2}));
  EXPECT_EQ(
      message_of({"a", "b"}, 1, 1),
      "--num-instances 1 leaves some of the 2 hosts without work; take 2 or more, or name fewer "
      "hosts");
}

}  // namespace
}  // namespace tessera
