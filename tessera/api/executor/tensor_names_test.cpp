#include "tessera/api/executor/tensor_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

// y = relu(relu(x w)); w learns.
struct Step {
  Graph graph;
  NamingRequest request;
  ValueId product;

  Step() {
    Builder build(graph);
    const TensorType type{DType::f32, {4, 4}};
    const ValueId x = graph.add_input(InputKind::data, "x", type);
    graph.add_input(InputKind::data, "labels", type);
    graph.add_input(InputKind::hyperparameter, "lr.0", {DType::f32, {2}});
    const ValueId w = graph.add_state(StateKind::parameter, "fc.weight", type);
    build.set_place({.file = "net.py", .line = 3, .module = "layer1.0"}, Phase::micro_batch);
    product = build.add("matmul", {x, w});
    const ValueId relu = build.add("relu", {build.add("relu", {product})});
    build.set_place({.file = "net.py", .line = 3, .module = "layer1.0", .backward = true},
                    Phase::micro_batch);
    const ValueId gradient = build.add("matmul", {x, relu});
    build.set_place({}, Phase::update);
    graph.states()[0].after_update = build.add("sub", {w, gradient});
    request.gradients = {{"Gradient___fc.weight", gradient}};
    request.loss = relu;
    request.numbers = {"scaledLearningRate0___default___FLOAT"};
  }
};

// spec: 13 tensor names
TEST(TensorNames, NameEverythingThatCanBeSeen) {
  const Step step;
  const TensorNames names(step.graph, step.request);
  EXPECT_EQ(names.list(), (std::vector<std::string>{
                              "input", "input/1", "loss", "fc.weight", "UpdatedVar___fc.weight",
                              "Gradient___fc.weight", "scaledLearningRate0___default___FLOAT",
                              "layer1/0/Matmul:0", "layer1/0/Relu:0", "layer1/0/Relu/1:0",
                              "layer1/0/backward/Matmul:0"}));
  EXPECT_EQ(names.find("layer1/0/Matmul:0").value, step.product);
  EXPECT_EQ(names.find("UpdatedVar___fc.weight").kind, TensorName::Kind::updated);
  EXPECT_EQ(names.find("UpdatedVar___fc.weight").index, 0U);
}

// spec: 2.2 disableModuleNamescope
TEST(TensorNames, ScopesCanBeLeftOut) {
  Step step;
  step.request.module_scopes = false;
  const auto list = TensorNames(step.graph, step.request).list();
  EXPECT_NE(std::find(list.begin(), list.end(), "Relu/1:0"), list.end());
}

// spec: 13 tensor names
TEST(TensorNames, AWrongNameIsAnsweredWithTheNextBest) {
  const Step step;
  const TensorNames names(step.graph, step.request);
  try {
    names.find("Gradient___fc.wieght");
    FAIL();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("alike are Gradient___fc.weight"), std::string::npos) << what;
  }
  EXPECT_EQ(&names.find("Gradient___model.fc.weight"), &names.find("Gradient___fc.weight"));
}

}  // namespace
}  // namespace tessera
