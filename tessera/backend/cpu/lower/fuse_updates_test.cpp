#include "tessera/backend/cpu/lower/fuse_updates.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"

namespace tessera::cpu {
namespace {

TEST(FuseUpdates, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("fuse_updates.ir")) {
    SCOPED_TRACE(one.name);
    const Graph graph = fuse_updates(one.before);
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
  }
}

}  // namespace
}  // namespace tessera::cpu
