// Replicas of a C++ model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tessera/api/model.h"

namespace tessera {
namespace {

namespace nn = torch::nn;

struct LineImpl : nn::Module {
  nn::Linear fc{3, 2};
  LineImpl() { register_module("fc", fc); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const auto y = fc(x);
    return {y, torch::mse_loss(y, torch::ones_like(y))};
  }
};
TORCH_MODULE(Line);

// spec: 2.2 replicationFactor, 5 replicas
TEST(ReplicasOfAModel, TrainTogether) {
  const auto x = torch::randn({8, 3});
  Line together, alone;
  {
    const at::NoGradGuard no_grad;
    alone->fc->weight.copy_(together->fc->weight);
    alone->fc->bias.copy_(together->fc->bias);
  }
  auto four = trainingModel(together, Options().replicationFactor(4),
                            optim::SGD(together->parameters(), {.lr = 0.1}));
  auto one = trainingModel(alone, {}, optim::SGD(alone->parameters(), {.lr = 0.1}));
  for (int step = 0; step < 3; ++step) {
    const auto [y, loss] = four(x);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{8, 2}));
    EXPECT_EQ(loss.sizes(), (std::vector<int64_t>{4}));
    const auto wanted = std::get<1>(one(x));
    EXPECT_TRUE(torch::allclose(loss.mean(), wanted, 1e-5, 1e-6));
  }
  EXPECT_TRUE(torch::allclose(four.module()->fc->weight, one.module()->fc->weight, 1e-5, 1e-6));
}

struct PartsImpl : nn::Module {
  at::Tensor weight;
  explicit PartsImpl(const at::Tensor& values) {
    weight = register_parameter("weight", values.clone());
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const auto y = torch::matmul(x, weight);
    return {y, identity_loss(y, LossReduction::sum)};
  }
};
TORCH_MODULE(Parts);

// spec: 12 replicaGrouping
TEST(ReplicasOfAModel, HaveWeightsOfTheirGroups) {
  const auto values = torch::arange(2 * 3, torch::kFloat).reshape({2, 3});
  Parts parts(values);
  auto model = trainingModel(parts, Options().replicationFactor(4),
                             optim::SGD(parts->parameters(), {.lr = 4.0}));
  model.replicaGrouping("weight", CommGroupType::consecutive, 2,
                        VariableRetrievalMode::one_per_group);
  const auto x = torch::eye(4, 3);
  const auto y = std::get<0>(model(x));
  EXPECT_TRUE(torch::equal(y, torch::tensor({0.0F, 1.0F, 5.0F, 0.0F})));
  // Of four replicas the mean is a quarter of the sum in each group.
  const auto wanted = values - torch::tensor({{1.0F, 1.0F, 0.0F}, {0.0F, 0.0F, 1.0F}});
  EXPECT_TRUE(torch::allclose(model.module()->weight, wanted)) << model.module()->weight;
  EXPECT_EQ(parts->weight.sizes(), (std::vector<int64_t>{2, 3}));
}

TEST(ReplicasOfAModel, CannotGroupWhatIsNotTheirs) {
  Line line;
  auto model = inferenceModel(line, Options().replicationFactor(2));
  const auto group = [&](const std::string& name) {
    model.replicaGrouping(name, CommGroupType::none, 0, VariableRetrievalMode::all_replicas);
  };
  EXPECT_THROW(group("fc.weight"), Error);
  EXPECT_THROW(group("other"), Error);
}

}  // namespace
}  // namespace tessera
