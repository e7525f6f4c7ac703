// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/round_at_contractions.h"

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"

namespace tessera::cpu {
namespace {

using RoundAtContractions = NeedsAvx2;

TEST_F(RoundAtContractions, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("round_at_contractions.ir")) {
    SCOPED_TRACE(one.name);
    const Graph graph = round_at_contractions(one.before, target_for_test());
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
    EXPECT_EQ(run_graph(graph), run_graph(one.before));
  }
}

}  // namespace
}  // namespace tessera::cpu
