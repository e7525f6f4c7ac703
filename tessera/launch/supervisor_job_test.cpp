#include "tessera/launch/supervisor_job.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(SupervisorJob, IsReadAsItWasWritten) {
  const SupervisorJob job = {.index = 1,
                             .hosts = {"a", "b"},
                             .instances = 4,
                             .replicas = 8,
                             .ipus_per_replica = 2,
                             .output_from = 0,
                             .binds = false,
                             .has_poprun = true,
                             .program = {"python3", ":", "::", "", "a:b", "--", "-x", "index=1"}};
  const std::vector<std::string> words = words_of(job);
  EXPECT_EQ(words.front(), supervisor_word);
  EXPECT_EQ(supervisor_job(words), job);
  // To mpirun a colon means something.
  EXPECT_EQ(std::count(words.begin(), words.end(), ":"), 0);
}

TEST(SupervisorJob, NobodyWritesItByHand) {
  EXPECT_THROW(supervisor_job({"--as-instance"}), Error);
  EXPECT_THROW(supervisor_job({"--as-instance", "index=x"}), Error);
  EXPECT_THROW(supervisor_job(words_of({.hosts = {"a"}, .program = {}})), Error);
}

}  // namespace
}  // namespace tessera
