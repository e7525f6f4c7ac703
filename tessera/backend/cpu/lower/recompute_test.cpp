#include "tessera/backend/cpu/lower/recompute.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"

namespace tessera::cpu {
namespace {

TEST(Recompute, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("recompute.ir")) {
    SCOPED_TRACE(one.name);
    const Graph graph = recompute_cheap_values(one.before);
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
  }
}

}  // namespace
}  // namespace tessera::cpu
