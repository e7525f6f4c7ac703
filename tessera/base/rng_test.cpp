#include "tessera/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tessera {
namespace {

TEST(Rng, IsAPureFunction) { EXPECT_EQ(random_words({1, 2}, 3, 4), random_words({1, 2}, 3, 4)); }

TEST(Rng, EveryArgumentCounts) {
  const auto base = random_words({1, 2}, 3, 4);
  EXPECT_NE(random_words({2, 2}, 3, 4), base);
  EXPECT_NE(random_words({1, 3}, 3, 4), base);
  EXPECT_NE(random_words({1, 2}, 4, 4), base);
  EXPECT_NE(random_words({1, 2}, 3, 5), base);
  EXPECT_NE(random_words({1, 2}, 3, 4 + (uint64_t{1} << 32)), base);
  EXPECT_NE(random_words({1, 2 + (uint64_t{1} << 32)}, 3, 4), base);
  EXPECT_NE(random_words({1, 2, 1}, 3, 4), base);
  EXPECT_NE(random_words({1, 2, 2}, 3, 4), random_words({1, 2, 1}, 3, 4));
}

// What users have seen and may have written down.
TEST(Rng, TheFirstReplicaDrawsTheSameForEver) {
  EXPECT_EQ(random_words({1, 2}, 3, 4),
            (std::array<uint32_t, 4>{3634936128U, 3626311935U, 2477280172U, 3112937168U}));
}

TEST(Rng, WordsLookUniform) {
  constexpr int counters = 25'000;
  double sum = 0, squares = 0;
  std::set<uint32_t> seen;
  for (uint64_t counter = 0; counter < counters; ++counter) {
    for (const uint32_t word : random_words({7, 0}, 1, counter)) {
      const double u = static_cast<double>(uniform_from_word(word));
      sum += u;
      squares += u * u;
      seen.insert(word);
    }
  }
  constexpr double n = counters * 4;
  EXPECT_NEAR(sum / n, 0.5, 5 / std::sqrt(12 * n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.01);
  EXPECT_GT(seen.size(), n - 10);
}

TEST(Rng, UniformStaysBelowOne) {
  EXPECT_EQ(uniform_from_word(0), 0.0F);
  EXPECT_LT(uniform_from_word(0xFFFFFFFF), 1.0F);
  EXPECT_EQ(uniform_from_word(0x80000000), 0.5F);
}

}  // namespace
}  // namespace tessera
