// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_losses.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"

namespace tessera::cpu {
namespace {

TEST(FuseLosses, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("fuse_losses.ir")) {
    SCOPED_TRACE(one.name);
    const Graph graph = fuse_losses(one.before);
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
    EXPECT_EQ(run_on_samples(graph), run_on_samples(one.before));
  }
}

}  // namespace
}  // namespace tessera::cpu
