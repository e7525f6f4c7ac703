#include "tessera/ops/node_memory.h"

#include <gtest/gtest.h>

#include "tessera/ops/builder.h"

namespace tessera {
namespace {

TEST(NodeMemory, TellsViewsAndConstantsFromOtherNodes) {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {2, 3}});
  const ValueId one = build.scalar(1, DType::f32);
  const ValueId sum = build.add("add", {x, one});
  const ValueId flat = build.reshape(sum, {6});
  graph.add_output("y", build.add("neg", {flat}));
  const GraphLifetimes lives = lifetimes(graph, memory_of);
  const auto of = [&](ValueId value) { return lives.values[static_cast<size_t>(value.index)]; };
  EXPECT_EQ(of(one).residence, Residence::constant);
  EXPECT_EQ(of(flat).base, sum);
  EXPECT_EQ(lives.constant_bytes, 4);
  EXPECT_EQ(lives.peak_bytes, 2 * 24);
}

}  // namespace
}  // namespace tessera
