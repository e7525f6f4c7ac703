// Loss scaling, half-precision accumulators and running means as programs, step by step.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/half.h"
#include "tessera/ops/builder.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/passes/scale_loss.h"
#include "tessera/runtime/environment.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

constexpr size_t width = 4;

float half(float value) { return to_float(to_half(value)); }

// A step whose gradient, before it is scaled, is its input: it passes through half precision on the
// way to a parameter of single precision.
struct Step {
  Graph graph;
  ValueId loss, loss_gradient;

  explicit Step(DType loss_type = DType::f32) {
    Builder builder(graph);
    const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {width}});
    graph.add_state(StateKind::parameter, "w", {DType::f32, {width}});
    loss = builder.cast(builder.add("sum", {x}), loss_type);
    loss_gradient = builder.scalar(1, loss_type);
    const ValueId scaled = builder.add("mul", {x, builder.cast(loss_gradient, DType::f32)});
    graph.add_output(gradient_name("w"),
                     builder.cast(builder.cast(scaled, DType::f16), DType::f32));
    graph.add_output("0", loss);
  }
};

struct Settings {
  bool scaled = true, automatic = false;
  int64_t accumulation = 1, device_iterations = 1;
  bool mean = true, running = false;
  DType accumulator = DType::f32;
  double loss_scaling = 1;
  LossScaleRule rule = {};
  DType loss_type = DType::f32;
};

// The program with a learning rate of one, so that weights are what they were less the gradient.
class Training {
 public:
  explicit Training(const Settings& settings) : settings_(settings) {
    Step step(settings.loss_type);
    LossScale scale;
    if (settings.scaled) {
      scale = scale_loss(
          step.graph,
          {.automatic = settings.automatic, .gradient_accumulation = settings.accumulation},
          step.loss_gradient, step.loss);
    }
    add_optimizer(step.graph,
                  {.gradient_accumulation = settings.accumulation,
                   .mean_reduction = settings.mean,
                   .running_mean = settings.running,
                   .loss_scale = scale.divisor,
                   .groups = {{.parameters = {"w"}, .accumulator = settings.accumulator}}});
    add_loss_scale_update(step.graph, scale, settings.rule);
    if (scale.final_scale.valid()) step.graph.add_output("scale", scale.final_scale);
    StepSignature signature = signature_of(step.graph, settings.accumulation);
    signature.device_iterations = settings.device_iterations;
    session_.emplace(
        compile(std::move(step.graph), std::move(signature), compile_options_of_environment()), 1);
    const float one = 1;
    if (settings.automatic) {
      session_->write_state(state(loss_scale_factor_name), std::as_bytes(std::span(&one, 1)));
    }
    set("learning_rate.0", 1);
    set("loss_scaling", settings.loss_scaling);
  }

  void set(std::string_view name, double value) {
    const auto& inputs = session_->executable().hyperparameters();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name == name) session_->set_hyperparameter(i, value);
    }
  }

  // One gradient for each micro-batch; the scales of micro-batches.
  std::vector<float> run(const std::vector<float>& gradients) {
    std::vector<float> x;
    for (const float g : gradients) {
      for (size_t i = 0; i < width; ++i) x.push_back(g * (1 + static_cast<float>(i)));
    }
    std::vector<std::byte> losses(gradients.size() * size_of(settings_.loss_type));
    std::vector<float> scales(gradients.size());
    RunRequest request;
    request.inputs = {reinterpret_cast<const std::byte*>(x.data())};
    request.outputs = {{losses.data()}};
    if (settings_.scaled) request.outputs.push_back({reinterpret_cast<std::byte*>(scales.data())});
    session_->run(request);
    return scales;
  }

  std::vector<float> read(std::string_view name) const {
    const size_t index = state(name);
    std::vector<float> values(
        static_cast<size_t>(numel(session_->executable().states()[index].type.shape)));
    session_->read_state(index, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<float> weights() const { return read("w"); }
  float factor() const { return read(loss_scale_factor_name)[0]; }

 private:
  size_t state(std::string_view name) const {
    const auto& states = session_->executable().states();
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].name == name) return i;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  Settings settings_;
  std::optional<Session> session_;
};

TEST(LossScaling, LiftsGradientsThatHalvesWouldLose) {
  const float tiny = 0x1p-30F;
  Training without({.scaled = false});
  without.run({tiny});
  EXPECT_EQ(without.weights(), std::vector<float>(width, 0));
  Training with({.loss_scaling = 0x1p20});
  with.run({tiny});
  EXPECT_EQ(with.weights(), (std::vector<float>{-tiny, -2 * tiny, -3 * tiny, -4 * tiny}));
}

TEST(LossScaling, PowersOfTwoChangeNoBit) {
  const std::vector<float> gradients = {0.1F, -0.37F, 1.7F};
  Training one({.scaled = false, .accumulation = 3}), two({.accumulation = 3, .loss_scaling = 256});
  one.run(gradients);
  two.run(gradients);
  EXPECT_EQ(one.weights(), two.weights());
  two.set("loss_scaling", 0.125);  // without compiling again
  one.run(gradients);
  two.run(gradients);
  EXPECT_EQ(one.weights(), two.weights());
}

TEST(LossScaling, DividesByWhatTheLossTypeMadeOfTheScale) {
  Training training({.loss_scaling = 1001.3, .loss_type = DType::f16});
  training.run({1});
  EXPECT_EQ(half(1001.3F), 1001.5F);
  EXPECT_EQ(training.weights()[0], -1);
}

// spec: 2.3 setAutomaticLossScaling
TEST(AutomaticLossScaling, DoublesUntilGradientsComeNearTheEnd) {
  Training training({.automatic = true, .loss_scaling = 64});
  // The greatest element is 4 times the gradient: at a scale of 1024 it is 8192, at 512 below the
  // edge of 8188.
  std::vector<float> scales;
  for (int i = 0; i < 8; ++i) scales.push_back(training.run({2})[0]);
  EXPECT_EQ(scales, (std::vector<float>{64, 128, 256, 512, 1024, 512, 1024, 512}));
  EXPECT_EQ(training.factor(), 1024.0F / 64);
  EXPECT_EQ(training.weights(), (std::vector<float>{-16, -32, -48, -64}));
}

TEST(AutomaticLossScaling, WhatIsNotFiniteIsBeyondTheEdge) {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    Training training({.automatic = true, .loss_scaling = 64});
    training.run({odd});
    EXPECT_EQ(training.factor(), 0.5F);
  }
}

TEST(AutomaticLossScaling, AFewGreatElementsMayBeAllowed) {
  Training training({.automatic = true, .loss_scaling = 512, .rule = {.proportion = 0.25}});
  training.run({4});  // 2048, 4096, 6144 and 8192: a quarter is not more than a quarter
  EXPECT_EQ(training.factor(), 2);
  training.run({4});
  EXPECT_EQ(training.factor(), 1);
}

TEST(AutomaticLossScaling, CountsOverMicroBatchesAndKeepsTheScaleMeanwhile) {
  Training training(
      {.automatic = true, .accumulation = 3, .device_iterations = 2, .loss_scaling = 512});
  // One micro-batch of the first update has great elements.
  const auto scales = training.run({1, 8, 1, 1, 1, 1});
  EXPECT_EQ(scales, (std::vector<float>{512, 512, 512, 256, 256, 256}));
  EXPECT_EQ(training.factor(), 1);
  EXPECT_FLOAT_EQ(training.weights()[0], -(10.0F / 3) - 1);
}

TEST(AutomaticLossScaling, ChangesAfterEachPeriod) {
  Training training(
      {.automatic = true, .device_iterations = 3, .loss_scaling = 512, .rule = {.period = 3}});
  EXPECT_EQ(training.run({1, 1, 1}), (std::vector<float>{512, 512, 512}));
  EXPECT_EQ(training.run({8, 1, 1}), (std::vector<float>{1024, 1024, 1024}));  // too many, early
  EXPECT_EQ(training.run({1, 1, 1}), (std::vector<float>{512, 512, 512}));
  EXPECT_EQ(training.factor(), 2);
}

TEST(AutomaticLossScaling, StaysBelowWhatTheLossTypeCanHold) {
  for (const DType type : {DType::f16, DType::f32}) {
    Training training({.automatic = true, .loss_scaling = 16384, .loss_type = type});
    for (int i = 0; i < 20; ++i) training.run({0});
    EXPECT_EQ(training.factor(), type == DType::f16 ? 2 : 1024);
    EXPECT_EQ(training.weights(), std::vector<float>(width, 0));
  }
}

// a = half(a k/(k+1) + g/(k+1)), computed in single precision.
TEST(HalfAccumulators, KeepARunningMean) {
  Training training(
      {.scaled = false, .accumulation = 4, .running = true, .accumulator = DType::f16});
  const std::vector<float> gradients = {60000, 50001, -0.1F, 0.3F};
  float mean = 0;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const auto count = static_cast<float>(k + 1);
    mean = half(mean * (static_cast<float>(k) / count) + half(gradients[k]) * (1 / count));
  }
  training.run(gradients);
  EXPECT_EQ(training.weights()[0], -mean);
  EXPECT_EQ(training.read("Counter___microBatches")[0], 0);
}

TEST(HalfAccumulators, AddUpWhereTheMeanIsDividedAtTheEnd) {
  Training training({.scaled = false, .accumulation = 3, .accumulator = DType::f16});
  const std::vector<float> gradients = {1000.5F, 0.3F, 7};
  float sum = 0;
  for (const float g : gradients) sum = half(sum + half(g));
  training.run(gradients);
  EXPECT_EQ(training.weights()[0], -(sum * (1.0F / 3)));
  Training too_much({.scaled = false, .accumulation = 2, .accumulator = DType::f16});
  too_much.run({40000, 40000});
  EXPECT_EQ(too_much.weights()[0], -INFINITY);
}

}  // namespace
}  // namespace tessera
