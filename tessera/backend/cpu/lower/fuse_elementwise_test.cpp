// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_elementwise.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/native.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/ir/text.h"

namespace tessera::cpu {
namespace {

void expect_rewrites(const std::string& file) {
  for (const RewriteCase& one : rewrite_cases(file)) {
    SCOPED_TRACE(one.name);
    const Graph fused = fuse_elementwise(one.before);
    verify(fused);
    EXPECT_EQ(print(fused), print(one.after));
    EXPECT_EQ(run_graph(fused), run_graph(one.before));
  }
}

TEST(FuseElementwise, BecomesWhatIsExpected) { expect_rewrites("fuse_elementwise.ir"); }

TEST(FuseElementwise, CalledStepsBecomeWhatIsExpected) {
  const std::vector<DType> numbers(2, DType::f32);
  const BodyStep step = parse_body("%0 = pow(a0, 2.5); out %0").steps[0];
  if (has_code(step, numbers)) GTEST_SKIP() << "here no step of a body is called";
  expect_rewrites("fuse_called_steps.ir");
}

}  // namespace
}  // namespace tessera::cpu
