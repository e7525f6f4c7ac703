#include "tessera/api/graph_export.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/api/executor/cycle_estimate.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

Graph product(int64_t size) {
  Graph graph;
  Builder build(graph);
  const TensorType type{DType::f32, {size, size}};
  const ValueId x = graph.add_input(InputKind::data, "x", type);
  const ValueId w = graph.add_state(StateKind::parameter, "fc.\"w\"", type);
  build.set_place({.file = "net.py", .line = 7, .module = "fc"}, Phase::micro_batch);
  graph.add_output("0", build.add("relu", {build.add("matmul", {x, w})}));
  return graph;
}

// spec: 1.4 _debugGetPopartIR
TEST(GraphExport, JsonHasEveryOperator) {
  EXPECT_EQ(graph_json(product(2)),
            R"({"maingraph": [{"type": "Matmul", "name": "fc/Matmul", "inputs": )"
            R"([{"name": "input", "shape": "[2, 2]", "dtype": "f32"}, )"
            R"({"name": "fc.\"w\"", "shape": "[2, 2]", "dtype": "f32"}], "outputs": )"
            R"([{"name": "fc/Matmul:0", "shape": "[2, 2]", "dtype": "f32"}], "attributes": )"
            R"({"__location": "net.py:7", "__phase": "micro_batch"}},)"
            "\n"
            R"({"type": "Relu", "name": "fc/Relu", "inputs": )"
            R"([{"name": "fc/Matmul:0", "shape": "[2, 2]", "dtype": "f32"}], "outputs": )"
            R"([{"name": "fc/Relu:0", "shape": "[2, 2]", "dtype": "f32"}], "attributes": )"
            R"({"__location": "net.py:7", "__phase": "micro_batch"}}]})");
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// spec: 7 POPTORCH_EXPORT_PROTO_FILE
TEST(GraphExport, AFileIsWrittenWhereTheVariableSays) {
  const std::string folder = testing::TempDir() + "graph_export_test";
  std::filesystem::remove_all(folder);
  const Graph graph = product(2);
  export_graph(graph);  // the variable is not set: nothing happens
  EXPECT_FALSE(std::filesystem::exists(folder));

  const auto written = [&](const std::string& path) {
    setenv("POPTORCH_EXPORT_PROTO_FILE", path.c_str(), 1);
    export_graph(graph);
    unsetenv("POPTORCH_EXPORT_PROTO_FILE");
    return content(path);
  };
  EXPECT_EQ(print(parse(written(folder + "/a/b/step.ir"))), print(graph));
  const std::string dot = written(folder + "/step.dot");
  EXPECT_TRUE(dot.starts_with("digraph")) << dot;
  EXPECT_NE(dot.find("n0 -> n1"), std::string::npos) << dot;
  EXPECT_THROW(written("/proc/no/such/folder/step.ir"), Error);
  unsetenv("POPTORCH_EXPORT_PROTO_FILE");
  std::filesystem::remove_all(folder);
}

// spec: 1.4 cycleCount
TEST(CycleEstimate, GrowsWithTheWorkAndIsRepeatable) {
  const Graph small = product(64), large = product(2048);
  const int64_t cycles = estimated_cycles(small, 1, 1);
  EXPECT_GT(cycles, 0);
  EXPECT_EQ(estimated_cycles(small, 1, 1), cycles);
  EXPECT_EQ(estimated_cycles(small, 3, 2), 6 * cycles);
  // 2048^3 multiply-adds at 16 a cycle on 1472 tiles are 364 722 cycles.
  EXPECT_NEAR(static_cast<double>(estimated_cycles(large, 1, 1)), 370e3, 10e3);
}

}  // namespace
}  // namespace tessera
