// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/widen_at_readers.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/lower/fuse_elementwise.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"

namespace tessera::cpu {
namespace {

void expect_rewrites(const std::string& file, Graph (*rewrite)(const Graph&)) {
  for (const RewriteCase& one : rewrite_cases(file)) {
    SCOPED_TRACE(one.name);
    const Graph graph = rewrite(one.before);
    verify(graph);
    EXPECT_EQ(print(graph), print(one.after));
    EXPECT_EQ(run_graph(graph), run_graph(one.before));
  }
}

// Of a machine on which nothing reads halves but what is fused.
Graph widen(const Graph& graph) { return widen_at_readers(graph, {.level = CpuLevel::portable}); }

TEST(WidenAtReaders, BecomesWhatIsExpected) { expect_rewrites("widen_at_readers.ir", widen); }

// Where kernels do: the others still get casts.
using ReadHalves = NeedsAvx2;
TEST_F(ReadHalves, BecomesWhatIsExpected) {
  expect_rewrites("read_halves.ir",
                  [](const Graph& graph) { return widen_at_readers(graph, target_for_test()); });
}

// With fusion behind it: what is stored between the nodes that are left.
TEST(WidenAtReaders, HalvesAreWhatIsStored) {
  expect_rewrites("fuse_halves.ir",
                  [](const Graph& graph) { return fuse_elementwise(widen(graph)); });
}

}  // namespace
}  // namespace tessera::cpu
