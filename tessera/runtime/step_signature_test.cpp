#include "tessera/runtime/step_signature.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

Blob bytes_from(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

Graph step() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {2, 3}});
  graph.add_input(InputKind::hyperparameter, "lr.0", {DType::f32, {2}});
  const ValueId index = graph.add_input(InputKind::data, "an \"index\"", {DType::i32, {}});
  graph.add_state(StateKind::buffer, "seen", {DType::i32, {}});
  graph.add_output("0", build.add("neg", {x}));
  graph.add_output("Input___1", index);
  return graph;
}

// One with something of everything.
StepSignature whole() {
  StepSignature signature = signature_of(step());
  signature.gradient_accumulation = 4;
  signature.device_iterations = 3;
  signature.replicas = 6;
  signature.input_groups = {2, true};
  signature.grouped_states = {{0, {3, false}, true}};
  signature.inputs[1].host = DType::i64;
  signature.outputs[0].mode = OutputMode::every_n;
  signature.outputs[0].period = 3;
  signature.returned = {{.type = {DType::i64, {1}},
                         .constant = bytes_from({1, 2, 3, 4, 5, 6, 7, 255}),
                         .is_new = true},
                        {.output = 0},
                        {.type = {DType::f32, {2, 0}}, .constant = bytes_from({})},
                        {.type = {DType::f32, {}}}};
  signature.structure = "(<tensor>, {'a\\n': [<tensor>, \"\t\"]}, <tensor>, <tensor>)";
  signature.written_back = {{1, 1}};
  signature.anchors = {
      {"short", "layer/Relu:0", StepAnchor::Source::output, 0, OutputMode::sum, 1},
      {"new seen", "UpdatedVar___seen", StepAnchor::Source::state, 0, OutputMode::all, 1},
      {"rate", "learningRate", StepAnchor::Source::hyperparameter, 7, OutputMode::final_value, 2}};
  return signature;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(StepSignature, OfAGraphAloneReturnsAllOutputs) {
  const StepSignature signature = signature_of(step(), 2);
  EXPECT_EQ(signature.gradient_accumulation, 2);
  ASSERT_EQ(signature.inputs.size(), 2U);
  EXPECT_EQ(signature.inputs[1].host, DType::i32);
  ASSERT_EQ(signature.returned.size(), 2U);
  EXPECT_EQ(signature.returned[1].output, 1U);
  check_fits(signature, step());
}

TEST(StepSignature, ItsTextGivesItBack) {
  for (const StepSignature& signature : {StepSignature{}, signature_of(step()), whole()}) {
    EXPECT_EQ(parse_signature(print(signature)), signature) << print(signature);
  }
  check_fits(whole(), step());
}

TEST(StepSignature, EveryPartIsComparedAndPrinted) {
  const std::vector<std::function<void(StepSignature&)>> changes = {
      [](StepSignature& s) { ++s.gradient_accumulation; },
      [](StepSignature& s) { ++s.device_iterations; },
      [](StepSignature& s) { s.replicas = 12; },
      [](StepSignature& s) { s.instances = 3; },
      [](StepSignature& s) { s.input_groups.size = 3; },
      [](StepSignature& s) { s.input_groups.orthogonal = false; },
      [](StepSignature& s) { s.grouped_states[0].groups.size = 0; },
      [](StepSignature& s) { s.grouped_states[0].of_every_replica = false; },
      [](StepSignature& s) { s.inputs[0].host = DType::f64; },
      [](StepSignature& s) { s.inputs[0].name += "y"; },
      [](StepSignature& s) { s.inputs[0].type.shape[0] = 7; },
      [](StepSignature& s) { s.outputs[0].mode = OutputMode::all; },
      [](StepSignature& s) { ++s.outputs[0].period; },
      [](StepSignature& s) {
        s.returned[0].constant = bytes_from({1, 2, 3, 4, 5, 6, 7, 8});
      },
      [](StepSignature& s) { s.returned[0].is_new = false; },
      [](StepSignature& s) { s.returned[1].output = 1; },
      [](StepSignature& s) { s.returned[2].constant = nullptr; },
      [](StepSignature& s) { s.structure += " "; },
      [](StepSignature& s) { s.written_back[0].input = 0; },
      [](StepSignature& s) { s.anchors[0].tensor += "/1"; },
      [](StepSignature& s) { s.anchors[0].source = StepAnchor::Source::state; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    StepSignature other = whole();
    changes[i](other);
    EXPECT_FALSE(other == whole()) << i;
    EXPECT_NE(print(other), print(whole())) << i;
    EXPECT_EQ(parse_signature(print(other)), other) << i;
  }
}

TEST(StepSignature, WhatIsNotTheGraphsIsRefused) {
  const auto refused = [](const std::function<void(StepSignature&)>& change) {
    StepSignature signature = whole();
    change(signature);
    return refusal([&] { check_fits(signature, step()); });
  };
  EXPECT_EQ(refused([](StepSignature&) {}), "");
  EXPECT_EQ(refused([](StepSignature& s) { s.inputs.pop_back(); }),
            "The signature has 1 inputs, the graph has 2.");
  EXPECT_NE(refused([](StepSignature& s) { s.inputs[0].type.shape[0] = 7; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.inputs[0].host = DType::i64; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.outputs[1].type.dtype = DType::f32; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.outputs.push_back(s.outputs[0]); }), "");
  EXPECT_EQ(refused([](StepSignature& s) { s.returned[1].output = 2; }),
            "The signature names output 2, of which there are 2.");
  EXPECT_NE(refused([](StepSignature& s) { s.written_back[0].input = 2; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.written_back[0].output = 2; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.anchors[0].index = 2; }), "");
  EXPECT_EQ(refused([](StepSignature& s) { s.anchors[1].index = 1; }),
            "The signature names state 1, of which there are 1.");
  EXPECT_NE(refused([](StepSignature& s) { s.outputs[0].period = 0; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.device_iterations = 0; }), "");
  EXPECT_EQ(refused([](StepSignature& s) { s.replicas = 0; }),
            "There must be between 1 and 1024 replicas, not 0.");
  EXPECT_EQ(refused([](StepSignature& s) { s.replicas = 3; }),
            "3 replicas cannot be divided into groups of 2 for the inputs.");
  EXPECT_NE(refused([](StepSignature& s) { s.input_groups.size = 0; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.grouped_states[0].state = 1; }), "");
  EXPECT_NE(refused([](StepSignature& s) { s.grouped_states[0].groups.size = 4; }), "");
}

TEST(StepSignature, ATextThatIsNoneIsRefusedWithItsLine) {
  const std::string begin = print(StepSignature{});
  const auto refused = [&](const std::string& line) {
    const std::string message = refusal([&] { parse_signature(begin + line); });
    EXPECT_TRUE(message.empty() || message.starts_with("line 2 of the signature: ")) << message;
    return message;
  };
  EXPECT_EQ(refused("\n  \n"), "");
  EXPECT_EQ(refused("writes_back {input = 0, output = 1}"), "");
  EXPECT_NE(refused("writes_back {input = 0}").find("needs a value for 'output'"),
            std::string::npos);
  EXPECT_NE(refused("writes_back {input = -1, output = 1}").find("no index"), std::string::npos);
  EXPECT_NE(refused("writes_back {input = 0, output = 1, more = 2}").find("'more'"),
            std::string::npos);
  EXPECT_NE(refused("writes_back {input = 0, output = 1} {}").find("more after"),
            std::string::npos);
  EXPECT_NE(refused("door {}").find("'door' is no part"), std::string::npos);
  EXPECT_NE(refused(begin).find("two steps"), std::string::npos);
  EXPECT_NE(refused("input {name = \"x\", host = f32, dtype = f32, shape = [9, -1]}"), "");
  EXPECT_NE(refused("input {name = \"x\", host = \"f32\", dtype = f32, shape = [9]}"), "");
  EXPECT_NE(refused("output {name = \"x\", dtype = f32, shape = [9], mode = \"some\", period = 1}"),
            "");
  EXPECT_NE(refused("output {name = \"x\", dtype = f32, shape = [9], mode = \"all\", period = 0}"),
            "");
  EXPECT_NE(refused("returns {dtype = f32, shape = [2], new = true, constant = bytes\"00\"}")
                .find("has 8 bytes, not 1"),
            std::string::npos);
  EXPECT_NE(refused("returns {dtype = f32, shape = [4611686018427387904], new = true}"), "");
  EXPECT_NE(refused("input"), "");
  EXPECT_NE(refusal([] { parse_signature(""); }), "");
  EXPECT_NE(refusal([] { parse_signature("writes_back {input = 0, output = 1}"); }), "");
}

// Cut anywhere, it is a signature or an Error.
TEST(StepSignature, ATextThatEndsTooEarlyIsRefusedOrWhole) {
  const std::string text = print(whole());
  for (size_t length = 0; length < text.size(); ++length) {
    refusal([&] { parse_signature(std::string_view(text).substr(0, length)); });
  }
}

TEST(StepSignature, HasNoMoreMicroBatchesThanCanBeCounted) {
  Graph graph;
  graph.add_input(InputKind::data, "x", {DType::f32, {2}});
  StepSignature signature = signature_of(graph);
  signature.device_iterations = int64_t{1} << 30;
  check_fits(signature, graph);
  signature.gradient_accumulation = int64_t{1} << 30;
  EXPECT_THROW(check_fits(signature, graph), Error);
  signature.device_iterations = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(check_fits(signature, graph), Error);
}

}  // namespace
}  // namespace tessera
