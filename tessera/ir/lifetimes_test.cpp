#include "tessera/ir/lifetimes.h"

#include <gtest/gtest.h>

#include "tessera/ir/text.h"

namespace tessera {
namespace {

// Nodes of an update stand between those of a micro-batch: they run after them.
constexpr std::string_view text = R"(graph "g" {
  input data "x" %0: f32[2]
  state parameter "w" %1: f32[4] update %5
  %2 = constant() : f32[8]
  %3 = make(%0, %1, _) : f32[16]
  %4 = show(%3) : f32[4,4]
  update %5 = step(%1, %3) : f32[4]
  %6 = make(%4, %2) : f32[32]
  %7 = make(%6) : f32[64]
  %8 = make(%7) : f32[1]
  output "y" %6
}
)";

NodeMemory memory_of(const Node& node) {
  if (node.op == "show") return NodeMemory::view;
  return node.op == "constant" ? NodeMemory::constant : NodeMemory::own;
}

const ValueLifetime& of(const GraphLifetimes& lives, int32_t value) {
  return lives.values[static_cast<size_t>(value)];
}

void expect_range(const GraphLifetimes& lives, int32_t value, int32_t first, int32_t last) {
  EXPECT_EQ(of(lives, value).first, first) << "%" << value;
  EXPECT_EQ(of(lives, value).last, last) << "%" << value;
}

TEST(Lifetimes, ReachFromWhereAValueIsMadeToItsLastReader) {
  const GraphLifetimes lives = lifetimes(parse(text), memory_of);
  // constant, make %3, show, make %6, make %7, make %8, step.
  EXPECT_EQ(lives.order, (std::vector<NodeId>{{0}, {1}, {2}, {4}, {5}, {6}, {3}}));
  expect_range(lives, 0, -1, 1);
  expect_range(lives, 1, -1, 6);
  expect_range(lives, 2, 0, 3);
  expect_range(lives, 3, 1, 6);  // in the update
  expect_range(lives, 4, 2, 3);
  expect_range(lives, 5, 6, 6);  // the parameter's next value
  expect_range(lives, 6, 3, 5);  // an output: to the end of the micro-batch
  expect_range(lives, 7, 4, 5);
  expect_range(lives, 8, 5, 5);  // nobody reads it, but it is written
}

TEST(Lifetimes, TellWhereMemoryComesFrom) {
  const GraphLifetimes lives = lifetimes(parse(text), memory_of);
  EXPECT_EQ(of(lives, 0).residence, Residence::input);
  EXPECT_EQ(of(lives, 1).residence, Residence::state);
  EXPECT_EQ(of(lives, 2).residence, Residence::constant);
  EXPECT_EQ(of(lives, 4).residence, Residence::temporary);
  EXPECT_EQ(of(lives, 4).base, ValueId{3});
  EXPECT_EQ(lives.input_bytes, 4 * 2);
  EXPECT_EQ(lives.state_bytes, 4 * 4);
  EXPECT_EQ(lives.constant_bytes, 4 * 8);
}

TEST(Lifetimes, AddUpTemporariesAtEachNode) {
  const GraphLifetimes lives = lifetimes(parse(text), memory_of);
  const std::vector<int64_t> floats = {0, 16, 16, 48, 48 + 64, 48 + 64 + 1, 16 + 4};
  ASSERT_EQ(lives.alive_bytes.size(), floats.size());
  for (size_t i = 0; i < floats.size(); ++i) EXPECT_EQ(lives.alive_bytes[i], 4 * floats[i]) << i;
  EXPECT_EQ(lives.peak_bytes, 4 * (48 + 64 + 1));
  EXPECT_EQ(lives.peak, 5);
}

TEST(Lifetimes, OfAViewKeepWhatItShows) {
  const GraphLifetimes lives = lifetimes(parse(R"(graph "g" {
  input data "x" %0: f32[2]
  %1 = make(%0) : f32[2]
  %2 = show(%1) : f32[2,1]
  %3 = show(%2) : f32[1,2]
  %4 = make(%0) : f32[2]
  %5 = make(%3) : f32[2]
}
)"),
                                         memory_of);
  EXPECT_EQ(of(lives, 3).base, ValueId{1});
  expect_range(lives, 1, 0, 4);
  EXPECT_EQ(lives.alive_bytes, (std::vector<int64_t>{8, 8, 8, 16, 16}));
}

TEST(Lifetimes, EveryValueHasItsOwnMemoryUnlessToldOtherwise) {
  const GraphLifetimes lives = lifetimes(parse(text));
  EXPECT_EQ(of(lives, 4).base, ValueId{4});
  EXPECT_EQ(of(lives, 2).residence, Residence::temporary);
  EXPECT_EQ(lives.constant_bytes, 0);
  EXPECT_EQ(lives.alive_bytes[2], 4 * (8 + 16 + 16));
}

TEST(Lifetimes, AGraphWithoutNodesHasNoPeak) {
  Graph graph;
  graph.add_output("x", graph.add_input(InputKind::data, "x", {DType::f32, {3}}));
  const GraphLifetimes lives = lifetimes(graph);
  EXPECT_EQ(lives.peak, -1);
  EXPECT_EQ(lives.peak_bytes, 0);
  EXPECT_EQ(lives.input_bytes, 12);
}

}  // namespace
}  // namespace tessera
