#include "tessera/passes/pass.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/passes/pipeline.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

void add_node(Graph& graph) {
  const TensorType type{DType::f32, {}};
  Node node;
  node.op = "neg";
  node.operands = {graph.inputs()[0].value};
  graph.add_node(std::move(node), {&type, 1});
}

void break_types(Graph& graph) {
  add_node(graph);
  graph.node({graph.node_count() - 1}).op = "no such operator";
}

Graph with_input() {
  Graph graph;
  graph.add_input(InputKind::data, "x", {DType::f32, {}});
  return graph;
}

const Pass optional_pass{"grow", add_node, "for the test"};
const Pass required_pass{"must", add_node, "nothing works without", true};
const Pass broken_pass{"broken", break_types, "for the test"};

TEST(Passes, ReportWhatRan) {
  Graph graph = with_input();
  const Pass passes[] = {optional_pass, required_pass};
  const auto reports = run_passes(graph, passes, {.disabled = {}, .verify = true});
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[1].name, "must");
  EXPECT_EQ(reports[1].nodes_before, 1);
  EXPECT_EQ(reports[1].nodes_after, 2);
}

TEST(Passes, CanBeTurnedOffUnlessRequired) {
  Graph graph = with_input();
  const Pass passes[] = {optional_pass, required_pass};
  EXPECT_EQ(run_passes(graph, passes, {.disabled = {"grow"}}).size(), 1U);
  EXPECT_EQ(graph.node_count(), 1);
  for (const char* name : {"must", "not a pass"}) {
    try {
      run_passes(graph, passes, {.disabled = {name}});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::value);
      EXPECT_EQ(error.message(),
                fmt::format("the disabled passes (TESSERA_DISABLE_PASSES) must be passes that can "
                            "be turned off, got '{}'; there are grow.",
                            name));
    }
  }
  EXPECT_EQ(graph.node_count(), 1);
}

TEST(Passes, AreCheckedWhereAsked) {
  Graph graph = with_input();
  EXPECT_NO_THROW(run_passes(graph, {&broken_pass, 1}, {.disabled = {}, .verify = false}));
  EXPECT_THROW(run_passes(graph, {&broken_pass, 1}, {.disabled = {}, .verify = true}),
               InternalError);
}

TEST(Passes, ShowTheGraphAfterEach) {
  Graph graph = with_input();
  std::vector<std::string> seen;
  PassOptions options;
  options.dump = [&](const Pass& pass, const Graph& after) {
    seen.push_back(fmt::format("{} {}", pass.name, after.node_count()));
  };
  const Pass passes[] = {optional_pass, required_pass};
  run_passes(graph, passes, options);
  EXPECT_EQ(seen, (std::vector<std::string>{"grow 1", "must 2"}));
}

TEST(Pipeline, FindsPassesByName) {
  EXPECT_EQ(find_pass(pipeline(), "remove_dead").name, "remove_dead");
  EXPECT_THROW(find_pass(pipeline(), "remove_live"), Error);
  for (const Pass& pass : pipeline()) EXPECT_FALSE(pass.reason.empty()) << pass.name;
}

std::string error_of(std::string_view lines) {
  try {
    read_graph(fmt::format("graph \"g\" {{\ninput data \"x\" %0: f32[2]\n{}\n}}\n", lines));
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(ReadGraph, CompletesAttributes) {
  const Graph graph =
      read_graph("graph \"g\" {\ninput data \"x\" %0: f32[2]\n%1 = add(%0, %0) : f32[2]\n}\n");
  EXPECT_EQ(graph.nodes()[0].attrs.number("alpha"), 1.0);
}

TEST(ReadGraph, RefusesWhatTheTableDoesNotAllow) {
  EXPECT_EQ(error_of("%1 = nonsense(%0) : f32[2]"), "there is no operator 'nonsense'");
  EXPECT_EQ(error_of("%1 = neg(%0, %0) : f32[2]"), "neg(self) was given 2 operands");
  EXPECT_EQ(error_of("%1 = add(%0) : f32[2]"), "add needs its operand 'other'");
  EXPECT_EQ(error_of("%1 = add(_, %0) : f32[2]"), "add needs its operand 'self'");
  EXPECT_EQ(error_of("%1 = add(%0, %0) {beta = 1.0} : f32[2]"), "add has no attribute 'beta'");
  EXPECT_EQ(error_of("%1 = neg(%0) : f32[3]"), "result 0 of neg is f32[2], not f32[3]");
  EXPECT_EQ(error_of("%1, %2 = neg(%0) : f32[2], f32[2]"), "neg has 1 results here, not 2");
}

}  // namespace
}  // namespace tessera
