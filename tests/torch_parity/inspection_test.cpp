// Looking inside a wrapped model from C++: names, anchors, counters, random state, buffers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "tessera/tessera.h"

namespace tessera {
namespace {

namespace nn = torch::nn;

struct NetImpl : nn::Module {
  nn::Linear fc{4, 3};
  at::Tensor scale;
  NetImpl() {
    register_module("fc", fc);
    scale = register_buffer("scale", torch::ones({3}));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    const auto out = torch::relu(fc(x)) * scale;
    return {out, torch::mse_loss(out, y)};
  }
};
TORCH_MODULE(Net);

std::pair<at::Tensor, at::Tensor> batch() {
  torch::manual_seed(7);
  return {torch::randn({4, 4}), torch::randn({4, 3})};
}

// spec: 1.4 getTensorNames
// spec: 1.4 getAnchoredTensor
TEST(Inspection, AnchoredGradientsAreThoseOfAutograd) {
  torch::manual_seed(1);
  Net net;
  const auto [x, y] = batch();
  const at::Tensor loss = std::get<1>(net->forward(x, y));
  loss.backward();
  const at::Tensor expected = net->fc->weight.grad().clone();
  const at::Tensor updated = net->fc->weight.detach() - 0.1 * expected;

  Options options;
  options.anchorTensor("grad", "Gradient___fc.weight");
  options.anchorTensor("updated", "UpdatedVar___fc.weight");
  auto model = trainingModel(net, options, optim::SGD(net->parameters(), {.lr = 0.1}));
  model.compile(x, y);
  const auto names = model.getTensorNames();
  EXPECT_NE(std::find(names.begin(), names.end(), "Gradient___fc.bias"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "loss"), names.end());
  model(x, y);
  EXPECT_TRUE(torch::allclose(model.getAnchoredTensor("grad"), expected, 1e-5, 1e-7));
  EXPECT_TRUE(torch::allclose(model.getAnchoredTensor("updated"), updated, 1e-5, 1e-7));
  try {
    model.getAnchoredTensor("other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::assertion);
  }
}

// spec: 1.4 getPerfCounters
// spec: 1.4 getLatency
// spec: 1.4 compilationTime
// spec: 1.4 cycleCount
TEST(Inspection, CountersHaveTheLengthsOfTheCall) {
  Net net;
  Options options;
  options.deviceIterations(2).outputMode(OutputMode::all).logCycleCount(true);
  auto model = inferenceModel(net, options);
  EXPECT_EQ(model.getPerfCounters().input, PerfCounters::Times(1));
  const auto [x, y] = batch();
  model(x, y);
  const PerfCounters counters = model.getPerfCounters();
  ASSERT_EQ(counters.input.size(), 2U);
  ASSERT_EQ(counters.output.size(), 2U);
  EXPECT_EQ(counters.input[0].size(), 2U);
  EXPECT_EQ(counters.output_complete[1].size(), 2U);
  EXPECT_GT(model.getLatency().min, 0);
  EXPECT_LE(model.getComputeLatency().min, model.getLatency().max);
  EXPECT_GT(model.compilationTime().count(), 0);
  EXPECT_GT(model.cycleCount(), 0);
}

// spec: 1.4 rng_state
// spec: 1.4 copyNamedBuffersToDevice
// spec: 1.4 __call__ connection never
TEST(Inspection, RandomStateBuffersAndOfflineTargets) {
  Net net;
  Options options;
  options.randomSeed(3).updatableNamedBuffers({"scale"});
  auto model = inferenceModel(net, options);
  const auto [x, y] = batch();
  model.compile(x, y);
  EXPECT_EQ(model.rng_state(), std::vector<int64_t>{3});
  const at::Tensor before = std::get<0>(model(x, y));
  const auto state = model.rng_state();
  ASSERT_TRUE(state && state->size() > 1);
  model(x, y);
  EXPECT_NE(model.rng_state(), state);
  model.set_rng_state(state);
  EXPECT_EQ(model.rng_state(), state);
  net->scale.fill_(2);
  model.copyNamedBuffersToDevice();
  EXPECT_TRUE(torch::equal(std::get<0>(model(x, y)), 2 * before));

  Options offline;
  offline.connectionType(ConnectionType::never);
  auto compiled = inferenceModel(net, offline);
  compiled.compile(x, y);
  EXPECT_FALSE(compiled.isAttachedToDevice());
  EXPECT_THROW(compiled(x, y), Error);
}

}  // namespace
}  // namespace tessera
