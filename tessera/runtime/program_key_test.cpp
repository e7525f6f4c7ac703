#include "tessera/runtime/program_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tessera/ops/builder.h"

namespace tessera {
namespace {

struct Step {
  Graph graph;
  StepSignature signature;
};

Blob bytes_from(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Step step() {
  Step made;
  Builder build(made.graph);
  const ValueId x = made.graph.add_input(InputKind::data, "x", {DType::f32, {2}});
  const ValueId weight = made.graph.add_state(StateKind::parameter, "w", {DType::f32, {2}});
  const ValueId product = build.add("mul", {x, weight});
  made.graph.add_output("0", build.add("leaky_relu", {product}, {{"negative_slope", 0.5}}));
  for (int32_t i = 0; i < made.graph.node_count(); ++i) {
    made.graph.node(NodeId{i}).origin = {.file = "model.py", .line = 10 + i, .module = "net"};
  }
  made.signature = signature_of(made.graph);
  return made;
}

std::string key_after(const std::function<void(Step&)>& change) {
  Step changed = step();
  change(changed);
  return program_key(changed.graph, changed.signature);
}

Node& last_node(Step& step) { return step.graph.node(NodeId{step.graph.node_count() - 1}); }

TEST(ProgramKey, IsThatOfWhatTheProgramDoes) {
  const std::string key = key_after([](Step&) {});
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(key_after([](Step&) {}), key);
  EXPECT_EQ(key_after([](Step& s) { s.graph.name = "another"; }), key);
  const std::vector<std::function<void(Step&)>> changes = {
      [](Step& s) { last_node(s).op = "relu"; },
      [](Step& s) { last_node(s).attrs.set("negative_slope", 0.25); },
      [](Step& s) { last_node(s).attrs.set("negative_slope", -0.0); },
      [](Step& s) {
        last_node(s).attrs.set("constant", bytes_from({1, 2}));
      },
      [](Step& s) {
        last_node(s).attrs.set("constant", bytes_from({1, 3}));
      },
      [](Step& s) { last_node(s).phase = Phase::update; },
      [](Step& s) { last_node(s).stage = 1; },
      [](Step& s) { last_node(s).origin.module = "other"; },
      [](Step& s) { last_node(s).operands[0] = ValueId{0}; },
      [](Step& s) { s.graph.add_output("1", ValueId{0}); },
      [](Step& s) { s.graph.states()[0].after_update = ValueId{0}; },
      [](Step& s) {
        s.graph.add_state(StateKind::buffer, "b", {DType::f32, {2}});
      },
      [](Step& s) {
        s.graph.add_input(InputKind::data, "y", {DType::f32, {2}});
      },
      [](Step& s) { s.signature.device_iterations = 2; },
      [](Step& s) { s.signature.gradient_accumulation = 2; },
      [](Step& s) { s.signature.inputs[0].host = DType::f64; },
      [](Step& s) { s.signature.outputs[0].mode = OutputMode::sum; },
      [](Step& s) { s.signature.outputs[0].period = 2; },
      [](Step& s) { s.signature.structure = "(<tensor>,)"; },
      [](Step& s) { s.signature.returned[0].is_new = true; },
      [](Step& s) {
        s.signature.written_back.push_back({0, 0});
      },
      [](Step& s) {
        s.signature.anchors.push_back({"a", "w"});
      },
  };
  std::set<std::string> keys = {key};
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_TRUE(keys.insert(key_after(changes[i])).second) << i;
  }
}

TEST(ProgramKey, LinesCountByTheirOrder) {
  const std::string key = key_after([](Step&) {});
  const auto moved = [](Step& s) {
    for (int32_t i = 0; i < s.graph.node_count(); ++i) {
      s.graph.node(NodeId{i}).origin.file = "elsewhere/model.py";
      s.graph.node(NodeId{i}).origin.line += 3;
    }
  };
  EXPECT_EQ(key_after(moved), key);
  EXPECT_NE(key_after([](Step& s) { last_node(s).origin.line = 10; }), key) << "one line now";
  Step there = step();
  moved(there);
  const std::vector<SourceLine> lines = source_lines(there.graph);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], (SourceLine{"elsewhere/model.py", 14}));
}

TEST(CompileKey, IsThatOfWhatIsMadeOfIt) {
  const auto key_after = [](const std::function<void(CompileOptions&)>& change) {
    CompileOptions options;
    change(options);
    return compile_key("program", options);
  };
  const std::string key = key_after([](CompileOptions&) {});
  EXPECT_EQ(key_after([](CompileOptions& o) { o.verify_passes = !o.verify_passes; }), key);
  EXPECT_EQ(key_after([](CompileOptions& o) { o.threads = 7; }), key);
  EXPECT_EQ(key_after([](CompileOptions& o) { o.logged_lines = 3; }), key);
  EXPECT_EQ(key_after([](CompileOptions& o) { o.progress = [](int) {}; }), key);
  std::set<std::string> keys = {key, compile_key("another", {})};
  const std::vector<std::function<void(CompileOptions&)>> changes = {
      [](CompileOptions& o) { o.disabled_passes = {"remove_dead"}; },
      [](CompileOptions& o) { o.keep_operators = true; },
      [](CompileOptions& o) { o.halves.rounding = Rounding::stochastic; },
      [](CompileOptions& o) { o.halves.matmul_partials = DType::f16; },
      [](CompileOptions& o) { o.halves.convolution_partials = DType::f16; },
      [](CompileOptions& o) { o.target.precise = true; },
      [](CompileOptions& o) { o.target.autotune = true; },
      [](CompileOptions& o) { o.target.disabled_kernels = {"x"}; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_TRUE(keys.insert(key_after(changes[i])).second) << i;
  }
  EXPECT_EQ(keys.size(), changes.size() + 2);
}

}  // namespace
}  // namespace tessera
