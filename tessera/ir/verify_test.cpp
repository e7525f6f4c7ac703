#include "tessera/ir/verify.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

const TensorType scalar{DType::f32, {}};

ValueId add(Graph& graph, std::vector<ValueId> operands, Phase phase = Phase::micro_batch,
            const TensorType& type = scalar) {
  Node node;
  node.op = "neg";
  node.operands = std::move(operands);
  node.phase = phase;
  return graph.node(graph.add_node(std::move(node), {&type, 1})).results[0];
}

std::string broken(const Graph& graph) {
  const auto promise = find_broken_promise(graph);
  return promise ? promise->what : "nothing";
}

TEST(Verify, AcceptsBothPhases) {
  Graph graph;
  const ValueId x = graph.add_input(InputKind::data, "x", scalar);
  graph.add_state(StateKind::parameter, "w", scalar);
  const ValueId y = add(graph, {x, {}});
  graph.states()[0].after_update = add(graph, {y}, Phase::update);
  graph.add_output("0", y);
  EXPECT_EQ(broken(graph), "nothing");
  EXPECT_NO_THROW(verify_structure(graph));
}

TEST(Verify, RefusesUseBeforeDefinition) {
  Graph graph;
  add(graph, {ValueId{1}});
  add(graph, {});
  EXPECT_EQ(broken(graph), "value %1 is used before it is made");
  EXPECT_THROW(verify_structure(graph), InternalError);
}

TEST(Verify, RefusesIdsOutOfRange) {
  Graph graph;
  add(graph, {ValueId{5}});
  EXPECT_EQ(broken(graph), "there is no value %5");
  Graph output;
  output.add_output("0", {});
  EXPECT_EQ(broken(output), "there is no value %-1");
}

TEST(Verify, RefusesValuesMadeTwice) {
  Graph graph;
  const ValueId y = add(graph, {});
  add(graph, {});
  graph.node({1}).results[0] = y;
  EXPECT_EQ(broken(graph), "value %0 is made twice");
}

TEST(Verify, RefusesWrongProducersAndOrphans) {
  Graph graph;
  add(graph, {});
  add(graph, {});
  std::swap(graph.node({0}).results, graph.node({1}).results);
  EXPECT_EQ(broken(graph), "value %1 does not know its producer");
  Graph orphan;
  add(orphan, {});
  orphan.node({0}).results.clear();
  EXPECT_EQ(broken(orphan), "value %0 is made by nothing");
}

TEST(Verify, RefusesWideTypesAndNegativeSizes) {
  for (const DType dtype : {DType::i64, DType::f64, DType::bf16}) {
    Graph graph;
    graph.add_input(InputKind::data, "x", {dtype, {}});
    EXPECT_NE(broken(graph).find("a type that graphs do not hold"), std::string::npos);
  }
  Graph graph;
  graph.add_input(InputKind::data, "x", {DType::f32, {2, -1}});
  EXPECT_EQ(broken(graph), "value %0 has the negative size -1");
}

TEST(Verify, RefusesUpdateValuesInMicroBatches) {
  Graph graph;
  const ValueId y = add(graph, {}, Phase::update);
  add(graph, {y});
  EXPECT_EQ(broken(graph), "value %0 exists only after an update but a micro-batch uses it");
  Graph output;
  output.add_output("0", add(output, {}, Phase::update));
  EXPECT_NE(broken(output), "nothing");
  Graph state;
  state.add_state(StateKind::buffer, "b", scalar);
  state.states()[0].after_micro_batch = add(state, {}, Phase::update);
  EXPECT_NE(broken(state), "nothing");
}

TEST(Verify, RefusesStatesThatChangeType) {
  Graph graph;
  graph.add_state(StateKind::buffer, "b", scalar);
  const ValueId y = add(graph, {}, Phase::update, {DType::f32, {1}});
  graph.states()[0].after_update = y;
  EXPECT_EQ(broken(graph), "state 'b' is f32[] but takes %1, which is f32[1]");
}

}  // namespace
}  // namespace tessera
