// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_elementwise.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"

namespace tessera::cpu {
namespace {

TEST(FuseElementwise, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("fuse_elementwise.ir")) {
    SCOPED_TRACE(one.name);
    const Graph fused = fuse_elementwise(one.before);
    verify(fused);
    EXPECT_EQ(print(fused), print(one.after));
    EXPECT_EQ(run_on_samples(fused), run_on_samples(one.before));
  }
}

}  // namespace
}  // namespace tessera::cpu
