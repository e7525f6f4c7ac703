// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_epilogues.h"

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"

// The cases' convolutions are oneDNN's.
#ifdef TESSERA_WITH_ONEDNN
namespace tessera::cpu {
namespace {

using FuseEpilogues = NeedsAvx2;

TEST_F(FuseEpilogues, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("fuse_epilogues.ir")) {
    SCOPED_TRACE(one.name);
    const Graph fused = fuse_epilogues(one.before, target_for_test());
    verify(fused);
    EXPECT_EQ(print(fused), print(one.after));
    EXPECT_EQ(run_graph(fused), run_graph(one.before));
  }
}

std::vector<Bytes> run_plan(const Plan& plan, const std::vector<Bytes>& inputs) {
  ThreadPool pool(2, level_for_test());
  Engine engine(plan, pool);
  for (size_t i = 0; i < inputs.size(); ++i) engine.set_data_input(i, inputs[i].data());
  engine.run_micro_batch({});
  std::vector<Bytes> outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    Bytes& output = outputs.emplace_back(
        static_cast<size_t>(bytes({plan.outputs[i].dtype, plan.outputs[i].geometry.shape})));
    copy_dense(engine.output(i), output.data(), pool);
  }
  return outputs;
}

// With the kernels that are chosen for them, too.
TEST_F(FuseEpilogues, GivesTheSameBits) {
  for (const RewriteCase& one : rewrite_cases("fuse_epilogues.ir")) {
    SCOPED_TRACE(one.name);
    const Plan apart =
        lower(one.before, on_test_target({.rewrites = {.disabled = {"fuse_epilogues"}}}));
    const Plan together = lower(one.before, on_test_target());
    const bool fused = print(one.before) != print(one.after);
    EXPECT_EQ(together.calls.size() < apart.calls.size(), fused);
    const auto inputs = made_up_inputs(one.before);
    EXPECT_EQ(run_plan(together, inputs), run_plan(apart, inputs));
  }
}

}  // namespace
}  // namespace tessera::cpu
#endif
