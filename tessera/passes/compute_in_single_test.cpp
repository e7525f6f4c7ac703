#include "tessera/passes/compute_in_single.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/ops/partials.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

// A product and a convolution of halves, and the same of floats.
Graph contractions() {
  return read_graph(R"(graph "g" {
  input data "x" %0: f16[2,20]
  input data "y" %1: f16[20,3]
  input data "i" %2: f16[1,2,8]
  input data "w" %3: f16[4,2,3]
  input data "z" %4: f32[2,20]
  input data "u" %5: f32[20,3]
  input data "j" %6: f32[1,2,8]
  input data "v" %7: f32[4,2,3]
  %8 = matmul(%0, %1) : f16[2,3]
  %9 = convolution(%2, %3) {padding = [0]} : f16[1,4,6]
  %10 = matmul(%4, %5) : f32[2,3]
  %11 = convolution(%6, %7) {padding = [0]} : f32[1,4,6]
  output "0" %8
  output "1" %9
  output "2" %10
  output "3" %11
})");
}

// Of the contractions, in their order.
std::vector<Attrs> attributes_after(const HalfArithmetic& halves) {
  Graph graph = contractions();
  compute_in_single(graph, halves);
  std::vector<Attrs> all;
  for (const Node& node : graph.nodes()) {
    if (node.op == "matmul" || node.op == "convolution") all.push_back(node.attrs);
  }
  return all;
}

std::vector<bool> in_halves(const HalfArithmetic& halves) {
  std::vector<bool> all;
  for (const Attrs& attrs : attributes_after(halves)) all.push_back(sums_in_halves(attrs));
  return all;
}

using Flags = std::vector<bool>;

TEST(ComputeInSingle, TellsContractionsOfHalvesWhatToAddUpIn) {
  EXPECT_EQ(in_halves({}), Flags({false, false, false, false}));
  EXPECT_EQ(in_halves({.matmul_partials = DType::f16}), Flags({true, false, false, false}));
  EXPECT_EQ(in_halves({.convolution_partials = DType::f16}), Flags({false, true, false, false}));
}

TEST(ComputeInSingle, GivesEachSumInHalvesAKeyWhereItRoundsByChance) {
  std::set<int64_t> keys;
  for (const Attrs& attrs : attributes_after({.rounding = Rounding::stochastic,
                            .matmul_partials = DType::f16,
                            .convolution_partials = DType::f16})) {
    EXPECT_EQ(rounds_partials_by_chance(attrs), sums_in_halves(attrs));
    if (sums_in_halves(attrs)) keys.insert(attrs.integer("rounding_key"));
  }
  EXPECT_EQ(keys.size(), 2U);
  for (const Attrs& attrs : attributes_after({.matmul_partials = DType::f16})) {
    EXPECT_FALSE(rounds_partials_by_chance(attrs));
  }
}

}  // namespace
}  // namespace tessera
