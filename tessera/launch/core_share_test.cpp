#include "tessera/launch/core_share.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

using Cores = std::vector<int>;

// spec: 8.3 numa-aware
TEST(CoreShare, CutsEvenly) {
  const Cores cores = {0, 4, 1, 5, 2, 6};  // threads of a core side by side
  EXPECT_EQ(share_of_cores(cores, 0, 1), cores);
  EXPECT_EQ(share_of_cores(cores, 0, 2), (Cores{0, 4, 1}));
  EXPECT_EQ(share_of_cores(cores, 1, 2), (Cores{5, 2, 6}));
  EXPECT_EQ(share_of_cores(cores, 2, 4), (Cores{5}));
  EXPECT_EQ(share_of_cores(cores, 3, 4), (Cores{2, 6}));
}

TEST(CoreShare, MoreInstancesThanCoresTakeTurns) {
  const Cores cores = {0, 1};
  EXPECT_EQ(share_of_cores(cores, 2, 3), Cores{0});
  EXPECT_EQ(share_of_cores(cores, 3, 5), Cores{1});
  EXPECT_EQ(share_of_cores(Cores{}, 0, 1), Cores{});
}

TEST(CoreShare, EveryUsableCoreIsFoundOnce) {
  const Cores cores = usable_cores();
  EXPECT_FALSE(cores.empty());
  EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
  bind_to_cores(cores);
  EXPECT_EQ(usable_cores(), cores);
}

TEST(CoreShare, IsShownAsRanges) {
  EXPECT_EQ(core_list({}), "");
  EXPECT_EQ(core_list({0, 4, 1, 5, 7}), "0-1,4-5,7");
}

}  // namespace
}  // namespace tessera
