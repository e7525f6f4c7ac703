// Optimisers in C++: what may change, what they remember, and how training goes on from there.
#include "tessera/api/optimizer/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/api/executor/executor.h"
#include "tessera/api/optimizer/optim.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

// A model of two weights, as executors see one.
struct Weights {
  explicit Weights(at::ScalarType type = at::kFloat)
      : a(at::linspace(-2, 3, 12).reshape({3, 4}).to(type).requires_grad_()),
        b(at::linspace(1, 2, 3).to(type).requires_grad_()) {}

  at::Tensor a, b;

  std::vector<at::Tensor> parameters() const { return {a, b}; }
  ModelAccess access() const {
    return {.parameters =
                [w = *this] {
                  return std::vector<NamedTensor>{{"a", w.a}, {"b", w.b}};
                },
            .buffers = [] { return std::vector<NamedTensor>{}; },
            .forward =
                [w = *this](const std::vector<at::Tensor>& inputs) {
                  const at::Tensor out = at::addmv(w.b, w.a, inputs[0][0]).to(at::kFloat);
                  return std::vector<at::Tensor>{at::mse_loss(out, at::zeros_like(out))};
                }};
  }
};

std::unique_ptr<Executor> training(const Weights& weights, const Optimizer& optimizer,
                                   Options options = {}) {
  options.showCompilationProgressBar(false);
  return std::make_unique<Executor>(Purpose::training, weights.access(), options, optimizer);
}

void run(Executor& executor, int begin, int end, at::ScalarType type = at::kFloat) {
  for (int i = begin; i < end; ++i) {
    executor.run({{"x", at::linspace(i, 1, 4).reshape({1, 4}).to(type)}});
  }
  executor.copyWeightsToHostIfNeeded();
}

std::string error_of(const std::function<void()>& function, ErrorKind kind = ErrorKind::user) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

// spec: 4.4 variable_attrs
TEST(VariableAttributes, OnlyKnownNamesAreMarked) {
  VariableAttributes attributes({"lr"}, {"lr", "momentum"});
  EXPECT_FALSE(attributes.isConstant("lr"));
  EXPECT_TRUE(attributes.isConstant("momentum"));
  EXPECT_TRUE(attributes.isConstant("anything"));
  attributes.markAsVariable("momentum");
  attributes.markAsConstant("lr");
  EXPECT_TRUE(attributes.isConstant("lr"));
  EXPECT_FALSE(attributes.isConstant("momentum"));
  const std::string error = error_of([&] { attributes.markAsVariable("x"); }, ErrorKind::assertion);
  EXPECT_NE(error.find("Unknown attribute x"), std::string::npos) << error;
}

// spec: 4.4 explicit attributes are variable
// spec: 4.4 changed constant
TEST(Optimizer, WhatIsLeftOutIsConstant) {
  const Weights weights;
  optim::SGD optimizer(weights.parameters(), {.lr = 0.1, .weight_decay = 0.0});
  const auto executor = training(weights, optimizer);
  run(*executor, 0, 1);
  optimizer.param_groups()[0].values["lr"] = 0.2;
  optimizer.param_groups()[0].values["weight_decay"] = 0.1;
  executor->setOptimizer(optimizer);
  optimizer.param_groups()[0].values["momentum"] = 0.9;
  const std::string error = error_of([&] { executor->setOptimizer(optimizer); });
  EXPECT_NE(error.find("momentum of group 0 is constant: it was 0"), std::string::npos) << error;
  EXPECT_EQ(optimizer.program().groups[0].velocity, true);  // it would take another program
}

// spec: 4.4 variable_attrs
TEST(Optimizer, MarkedAttributesChange) {
  const Weights weights;
  optim::Adam optimizer(weights.parameters(), {});
  optimizer.variable_attrs().markAsVariable("lr");
  const auto executor = training(weights, optimizer);
  run(*executor, 0, 1);
  optimizer.param_groups()[0].values["lr"] = 0.2;
  executor->setOptimizer(optimizer);
  run(*executor, 1, 2);
  const auto values = optimizer.state_dict();
  ASSERT_TRUE(values);
  ASSERT_EQ(values->ipu_param.size(), 2);
  for (const auto& [name, tensor] : values->ipu_param) {  // in the order of their use
    EXPECT_TRUE(name.starts_with("learningRate___specific___")) << name;
    EXPECT_EQ(tensor.item<float>(), 0.2F);
  }
}

// spec: 4.5 state_dict
// spec: 4.5 load_state_dict
// spec: 4.5 state_dict before compile
TEST(Optimizer, AStateResumesBitForBit) {
  const auto make = [](const Weights& weights) {
    return optim::RMSprop(weights.parameters(), {.lr = 0.01, .momentum = 0.9});
  };
  const Weights whole;
  const auto uninterrupted = training(whole, make(whole));
  run(*uninterrupted, 0, 6);

  const Weights weights;
  optim::RMSprop first = make(weights);
  EXPECT_FALSE(first.state_dict());
  auto executor = training(weights, first);
  run(*executor, 0, 3);
  const auto values = first.state_dict();
  ASSERT_TRUE(values);
  EXPECT_EQ(values->ipu_state.size(), 6);
  executor->destroy();
  executor.reset();

  optim::RMSprop second = make(weights);
  second.load_state_dict(*values);
  run(*training(weights, second), 3, 6);
  EXPECT_TRUE(at::equal(weights.a, whole.a));
  EXPECT_TRUE(at::equal(weights.b, whole.b));
  EXPECT_EQ(second.state_dict()->ipu_state.size(), 6);  // the executor is gone
}

// spec: 4.5 load_state_dict errors
// spec: 4.5 missing entries
TEST(Optimizer, PartsOfAStateAndStatesOfOthers) {
  const Weights weights;
  optim::Adam optimizer(weights.parameters(), {.lr = 0.01});
  EXPECT_NE(error_of([&] { optimizer.load_state_dict({}); }, ErrorKind::runtime).find("empty"),
            std::string::npos);
  const auto executor = training(weights, optimizer);
  run(*executor, 0, 2);
  auto values = *optimizer.state_dict();
  const auto kept = values.ipu_state[0];
  values.ipu_state.erase(values.ipu_state.begin());
  optimizer.load_state_dict(values);
  EXPECT_EQ(optimizer.state_dict()->ipu_state.size(), values.ipu_state.size());
  executor->detachFromDevice();
  const auto now = optimizer.state_dict();
  EXPECT_EQ(now->ipu_state[0].name, kept.name);
  EXPECT_TRUE(at::equal(now->ipu_state[0].tensor, kept.tensor));

  values.ipu_state[0].tensor = at::zeros({7});
  optimizer.load_state_dict(values);
  const std::string error = error_of([&] { run(*executor, 2, 3); });
  EXPECT_NE(error.find("has shape [7]"), std::string::npos) << error;
}

// spec: 4.4 new attributes
TEST(Optimizer, AttributesOfTheWholeAreNotAGroups) {
  const Weights weights;
  const Optimizer optimizer("SGD",
                            {{weights.parameters(),
                              {{"lr", 0.1},
                               {"momentum", 0},
                               {"dampening", 0},
                               {"weight_decay", 0},
                               {"loss_scaling", 2},
                               {"initial_lr", 3}}}},
                            {.values = {{"loss_scaling", 4}}});
  EXPECT_EQ(optimizer.groups()[0].values.at("loss_scaling"), 4);
  EXPECT_EQ(optimizer.groups()[0].others, (std::vector<std::string>{"initial_lr", "loss_scaling"}));
}

at::Tensor state_named(const Optimizer& optimizer, std::string_view wanted) {
  const auto values = optimizer.state_dict();
  for (const auto& [name, tensor] : values ? values->ipu_state : std::vector<NamedTensor>()) {
    if (name == wanted) return tensor;
  }
  ADD_FAILURE() << "no state " << wanted;
  return at::zeros({});
}

// spec: 4.2 accum types
TEST(Optimizer, StatesHaveTheTypesThatWereAskedFor) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
    const Weights weights(type);
    optim::Adam optimizer(weights.parameters(),
                          {.lr = 0.01, .first_order_momentum_accum_type = at::kHalf});
    const auto executor = training(weights, optimizer);
    run(*executor, 0, 2, type);
    EXPECT_EQ(weights.a.scalar_type(), type);
    EXPECT_EQ(state_named(optimizer, "Accl1___a").scalar_type(), at::kHalf);
    EXPECT_EQ(state_named(optimizer, "Accl2___a").scalar_type(), at::kFloat);
    EXPECT_EQ(state_named(optimizer, "Step___a").item<float>(), 2);
  }
  const Weights weights;
  const std::string error = error_of(
      [&] { optim::SGD(weights.parameters(), {.lr = 0.1, .velocity_accum_type = at::kInt}); },
      ErrorKind::value);
  EXPECT_NE(error.find("velocity_accum_type must be torch::kFloat or torch::kHalf"),
            std::string::npos)
      << error;
}

// spec: 4.2 accum types
// spec: 2.3 setMeanAccumulationAndReplicationReductionStrategy
TEST(Optimizer, HalfAccumulatorsTakeRunningMeans) {
  const Weights weights;
  Options options;
  options.Training().gradientAccumulation(2);
  const auto executor = training(
      weights, optim::SGD(weights.parameters(), {.lr = 0.01, .accum_type = at::kHalf}), options);
  EXPECT_EQ(executor->options().Training().mean_accumulation_and_replication_reduction_strategy(),
            MeanReductionStrategy::running);
}

// spec: 4.3 loss scaling
// spec: 4.4 changed constant
TEST(Optimizer, ALossScaleOfAPowerOfTwoChangesNoBit) {
  const auto trained = [](optim::Number scale) {
    Weights weights(at::kHalf);
    optim::SGD optimizer(weights.parameters(), {.lr = 0.01, .loss_scaling = scale});
    const auto executor = training(weights, optimizer);
    run(*executor, 0, 2, at::kHalf);
    return weights.a.detach().clone();
  };
  EXPECT_TRUE(at::equal(trained({}), trained(256)));
  EXPECT_NE(error_of([&] { trained(0); }, ErrorKind::value).find("above zero"), std::string::npos);
}

// spec: 2.3 setAutomaticLossScaling
TEST(Optimizer, FindsItsLossScale) {
  const Weights weights(at::kHalf);
  Options options;
  options.Training().setAutomaticLossScaling(true);
  options.Popart().set("automaticLossScalingSettings.updatePeriod", int64_t{2});
  optim::SGD optimizer(weights.parameters(), {.lr = 1e-3, .loss_scaling = 4});
  const auto executor = training(weights, optimizer, options);
  run(*executor, 0, 1, at::kHalf);
  EXPECT_EQ(state_named(optimizer, "lossScaleUpdateFactor").item<float>(), 1);
  run(*executor, 1, 5, at::kHalf);
  EXPECT_EQ(state_named(optimizer, "lossScaleUpdateFactor").item<float>(), 4);
}

}  // namespace
}  // namespace tessera
