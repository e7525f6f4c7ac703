#include "tessera/api/partition.h"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// spec: 3.2 drop_last
TEST(Partition, PartsAreEqualWholeAndDisjoint) {
  for (int64_t processes = 1; processes <= 5; ++processes) {
    for (int64_t step = 1; step <= 7; ++step) {
      for (int64_t samples = step * processes; samples < 60; ++samples) {
        int64_t end = 0;
        for (int64_t process = 0; process < processes; ++process) {
          const Partition part = partition(samples, step, process, processes, true);
          EXPECT_EQ(part.first, end);
          EXPECT_EQ(part.count, step * (samples / (step * processes)));
          EXPECT_EQ(part.leftovers, samples % part.count);
          end += part.count;
          // The later window of odd epochs lies within the dataset too.
          EXPECT_EQ(part.first_in(0), part.first);
          EXPECT_EQ(part.first_in(3), part.first + part.leftovers);
          EXPECT_LE(part.first_in(1) + part.count, samples);
        }
        EXPECT_LT(samples - end, step * processes);
      }
    }
  }
}

// spec: 3.2 keeping the remainder
TEST(Partition, WithoutDroppingEverySampleBelongsToOneProcess) {
  for (int64_t processes = 1; processes <= 5; ++processes) {
    for (int64_t samples = 0; samples < 30; ++samples) {
      int64_t end = 0;
      for (int64_t process = 0; process < processes; ++process) {
        const Partition part = partition(samples, 4, process, processes, false);
        EXPECT_EQ(part.first, end);
        EXPECT_EQ(part.count, samples / processes + (process < samples % processes ? 1 : 0));
        EXPECT_EQ(part.first_in(1), part.first);
        end += part.count;
      }
      EXPECT_EQ(end, samples);
    }
  }
}

TEST(Partition, TooFewSamplesAreRefused) {
  try {
    (void)partition(23, 4, 0, 6, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("23 samples"), std::string::npos);
    EXPECT_NE(error.message().find("6 processes"), std::string::npos);
  }
  EXPECT_EQ(partition(24, 4, 0, 6, true).count, 4);
}

// spec: 3.2 common shuffle
TEST(Partition, TheSameSeedGivesTheSameOrders) {
  CommonShuffle one(7), other(7), third(8);
  const at::Tensor first = one.next(50);
  EXPECT_TRUE(first.equal(other.next(50)));
  EXPECT_FALSE(first.equal(third.next(50)));
  const at::Tensor second = one.next(50);
  EXPECT_FALSE(first.equal(second));
  EXPECT_TRUE(second.equal(other.next(50)));
}

// spec: 3.2 randomSeed
TEST(Partition, ShufflingNeedsASeed) {
  Options options;
  options.Distributed().configureProcessId(0, 2);
  try {
    (void)common_shuffle_seed(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::assertion);
  }
  EXPECT_EQ(common_shuffle_seed(options.clone().randomSeed(5)), 5);
}

}  // namespace
}  // namespace tessera
