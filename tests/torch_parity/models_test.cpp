// Whole models, written in C++: gradients against float64, training against eager LibTorch.
#include <c10/util/Backtrace.h>
#include <c10/util/Logging.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tessera/tessera.h"
#include "tests/torch_parity/relative_error.h"

namespace tessera {
namespace {

namespace nn = torch::nn;
using Pair = std::tuple<at::Tensor, at::Tensor>;

struct SeedCnnImpl : nn::Module {
  nn::Conv2d conv1{nn::Conv2dOptions(1, 5, 3)}, conv2{nn::Conv2dOptions(5, 12, 5)};
  nn::GroupNorm norm{nn::GroupNormOptions(3, 12)};
  nn::Linear fc1{972, 100}, fc2{100, 10};
  SeedCnnImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("norm", norm);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Pair forward(const at::Tensor& images, const at::Tensor& labels) {
    auto x = torch::max_pool2d(torch::relu(conv1(images)), 2);
    x = norm(torch::relu(conv2(x))).flatten(1);
    x = torch::log_softmax(fc2(torch::relu(fc1(x))), 1);
    return {x, torch::nll_loss(x, labels)};
  }
};
TORCH_MODULE(SeedCnn);

struct MlpImpl : nn::Module {
  nn::Linear a{784, 64}, b{64, 10};
  MlpImpl() {
    register_module("a", a);
    register_module("b", b);
  }
  Pair forward(const at::Tensor& images, const at::Tensor& labels) {
    const auto x = b(torch::relu(a(images.flatten(1))));
    return {x, torch::nn::functional::cross_entropy(x, labels)};
  }
};
TORCH_MODULE(Mlp);

struct BatchNormCnnImpl : nn::Module {
  nn::Conv2d conv{nn::Conv2dOptions(1, 6, 3).padding(1).stride(2)};
  nn::BatchNorm2d norm{6};
  nn::Dropout dropout{0.0};
  nn::Linear fc{6 * 49, 10};
  BatchNormCnnImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("fc", fc);
  }
  Pair forward(const at::Tensor& images, const at::Tensor& labels) {
    auto x = torch::relu(norm(conv(images)));
    x = dropout(torch::avg_pool2d(x, 2)).flatten(1);
    x = fc(x);
    return {x, torch::nn::functional::cross_entropy(x, labels)};
  }
};
TORCH_MODULE(BatchNormCnn);

Pair batch(int64_t seed, int64_t size = 16) {
  torch::manual_seed(static_cast<uint64_t>(seed) + 100);
  return {torch::randn({size, 1, 28, 28}), torch::randint(10, {size})};
}

template <typename Module>
Module copy_of(const Module& module) {
  Module copied;
  const torch::NoGradGuard no_grad;
  const auto from = weights_of(module), to = weights_of(copied);
  for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i].tensor).copy_(from[i].tensor);
  return copied;
}

template <typename Module>
std::vector<at::Tensor> eager_gradients(const Module& module, at::ScalarType type) {
  Module copied = copy_of(module);
  copied->to(type);
  const auto [images, labels] = batch(0);
  std::get<1>(copied->forward(images.to(type), labels)).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : copied->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

template <typename Module>
std::vector<at::Tensor> our_gradients(const Module& module) {
  // A power of two: the step is the gradient, not its rounding against the weight.
  const double lr = std::ldexp(1.0, 40);
  Module copied = copy_of(module);
  auto training = trainingModel(copied, {}, optim::SGD(copied->parameters(), {.lr = lr}));
  const auto [images, labels] = batch(0);
  training(images, labels);
  const auto before = module->parameters();
  const auto after = training.module()->parameters();
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < before.size(); ++i) {
    gradients.push_back((before[i].to(at::kDouble) - after[i].to(at::kDouble)) / lr);
  }
  return gradients;
}

template <typename Module>
void check_gradients() {
  torch::manual_seed(1);
  Module module;
  const auto exact = eager_gradients(module, at::kDouble);
  const auto eager = eager_gradients(module, at::kFloat);
  const auto ours = our_gradients(module);
  const auto names = module->named_parameters().keys();
  for (size_t i = 0; i < exact.size(); ++i) {
    if (exact[i].norm().template item<double>() < 1e-9) {
      EXPECT_LT(ours[i].norm().template item<double>(), 1e-6) << names[i];
      continue;
    }
    EXPECT_LE(relative_error(ours[i], exact[i]), 3 * relative_error(eager[i], exact[i]) + 1e-5)
        << names[i];
  }
}

template <typename Module>
void check_twenty_steps() {
  torch::manual_seed(2);
  Module reference;
  Module module = copy_of(reference);
  torch::optim::SGD eager(reference->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  auto training =
      trainingModel(module, {}, optim::SGD(module->parameters(), {.lr = 0.01, .momentum = 0.9}));
  for (int step = 0; step < 20; ++step) {
    const auto [images, labels] = batch(step);
    eager.zero_grad();
    const auto loss = std::get<1>(reference->forward(images, labels));
    loss.backward();
    eager.step();
    const auto [output, our_loss] = training(images, labels);
    EXPECT_NEAR(our_loss.template item<double>(), loss.template item<double>(), 1e-4);
  }
  const auto ours = training.module()->named_parameters();
  for (const auto& item : reference->named_parameters()) {
    EXPECT_LE(relative_error(ours[item.key()], item.value()), 1e-5) << item.key();
  }
  const auto buffers = module->named_buffers();
  for (const auto& item : reference->named_buffers()) {
    EXPECT_LE(relative_error(buffers[item.key()], item.value()), 1e-5) << item.key();
  }
}

// The loss of the last of twenty steps over one batch.
template <typename Module>
double trained_loss(const Module& reference, at::ScalarType type) {
  Module module = copy_of(reference);
  module->to(type);
  // Small gradients are halves that way. With larger steps twenty of them may part by a maximum
  // between two equal halves, whatever is rounded how.
  const optim::SGDOptions numbers{.lr = 0.003, .loss_scaling = 128.0};
  auto training = trainingModel(module, {}, optim::SGD(module->parameters(), numbers));
  const auto [images, labels] = batch(0);
  at::Tensor loss;
  for (int step = 0; step < 20; ++step) {
    loss = std::get<1>(training(images.to(type), labels));
    EXPECT_EQ(loss.scalar_type(), type);
  }
  EXPECT_EQ(training.module()->parameters()[0].scalar_type(), type);
  return loss.item<double>();
}

template <typename Module>
void check_twenty_steps_in_half() {
  torch::manual_seed(2);
  Module module;
  const double expected = trained_loss(module, at::kFloat);
  EXPECT_NEAR(trained_loss(module, at::kHalf), expected, 0.05 * expected);
}

TEST(Models, SeedCnnGradients) { check_gradients<SeedCnn>(); }
TEST(Models, MlpGradients) { check_gradients<Mlp>(); }
TEST(Models, BatchNormCnnGradients) { check_gradients<BatchNormCnn>(); }
TEST(Models, SeedCnnTrains) { check_twenty_steps<SeedCnn>(); }
TEST(Models, MlpTrains) { check_twenty_steps<Mlp>(); }
TEST(Models, BatchNormCnnTrains) { check_twenty_steps<BatchNormCnn>(); }
TEST(Models, SeedCnnTrainsInHalf) { check_twenty_steps_in_half<SeedCnn>(); }
TEST(Models, MlpTrainsInHalf) { check_twenty_steps_in_half<Mlp>(); }
TEST(Models, BatchNormCnnTrainsInHalf) { check_twenty_steps_in_half<BatchNormCnn>(); }

std::vector<at::Tensor> trained(int threads) {
  setenv("TESSERA_NUM_THREADS", std::to_string(threads).c_str(), 1);
  torch::manual_seed(3);
  SeedCnn module;
  auto training = trainingModel(module, Options().randomSeed(3),
                                optim::SGD(module->parameters(), {.lr = 0.05, .momentum = 0.9}));
  for (int step = 0; step < 5; ++step) {
    const auto [images, labels] = batch(step);
    training(images, labels);
  }
  unsetenv("TESSERA_NUM_THREADS");
  return training.module()->parameters();
}

TEST(Models, SameBitsForAnyNumberOfThreads) {
  const auto first = trained(1);
  for (const int threads : {1, 2, 3}) {
    const auto again = trained(threads);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], again[i]));
  }
}

// PyTorch takes milliseconds to write down where an error came from, so that asking it what it
// cannot say, once for each layer, would be most of compiling.
TEST(Models, CompilingAsksPytorchNothingItCannotSay) {
  int errors = 0;
  c10::SetStackTraceFetcher([&errors] {
    ++errors;
    return std::string();
  });
  BatchNormCnn module;
  auto training = trainingModel(module, {}, optim::SGD(module->parameters(), {.lr = 0.1}));
  const auto [images, labels] = batch(0);
  training.compile(images, labels);
  c10::SetStackTraceFetcher([] { return c10::get_backtrace(1); });
  EXPECT_EQ(errors, 0);
}

TEST(Models, InferenceFollowsTraining) {
  Mlp module;
  auto training = trainingModel(module, {}, optim::SGD(module->parameters(), {.lr = 0.1}));
  auto inference = inferenceModel(module);
  const auto [images, labels] = batch(0);
  const auto before = std::get<0>(inference(images, labels));
  training(images, labels);
  const auto after = std::get<0>(inference(images, labels));
  EXPECT_FALSE(torch::equal(before, after));
  EXPECT_TRUE(
      torch::allclose(after, std::get<0>(training.module()->forward(images, labels)), 1e-4, 1e-5));
}

TEST(Models, LibTorchsOptimizerCarriesTheNumbers) {
  torch::manual_seed(5);
  Mlp a;
  Mlp b = copy_of(a);
  torch::optim::SGD theirs(a->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  auto first = trainingModel(a, {}, Optimizer(theirs));
  auto second = trainingModel(b, {}, optim::SGD(b->parameters(), {.lr = 0.1, .momentum = 0.5}));
  const auto [images, labels] = batch(0);
  for (int i = 0; i < 3; ++i) {
    first(images, labels);
    second(images, labels);
  }
  EXPECT_TRUE(torch::equal(first.module()->a->weight, second.module()->a->weight));
  torch::optim::Adagrad adagrad(a->parameters());
  EXPECT_THROW(Optimizer{adagrad}, Error);
  torch::optim::Adam amsgrad(a->parameters(), torch::optim::AdamOptions().amsgrad(true));
  EXPECT_THROW(Optimizer{amsgrad}, Error);
}

// The gradient of each weight is an input.
struct RecordedImpl : nn::Module {
  at::Tensor a = register_parameter("a", torch::linspace(-2, 3, 60).reshape({6, 10}));
  at::Tensor b = register_parameter("b", torch::linspace(1, 2, 5));
  at::Tensor forward(const at::Tensor& grad_a, const at::Tensor& grad_b) {
    return identity_loss((a * grad_a[0]).sum() + (b * grad_b[0]).sum(), LossReduction::sum);
  }
};
TORCH_MODULE(Recorded);

Pair recorded_gradients(int step) {
  torch::manual_seed(100 + step);
  return {torch::randn({1, 6, 10}), torch::randn({1, 5})};
}

// Twenty steps of LibTorch's optimiser, and of ours with these numbers; their weights.
void expect_follows(Recorded& reference, torch::optim::Optimizer& eager, Recorded& module,
                    const Optimizer& optimizer) {
  auto training = trainingModel(module, {}, optimizer);
  for (int step = 0; step < 20; ++step) {
    const auto [grad_a, grad_b] = recorded_gradients(step);
    reference->a.mutable_grad() = grad_a[0].clone();
    reference->b.mutable_grad() = grad_b[0].clone();
    eager.step();
    training(grad_a, grad_b);
  }
  EXPECT_LE(relative_error(training.module()->a, reference->a), 1e-6);
  EXPECT_LE(relative_error(training.module()->b, reference->b), 1e-6);
}

TEST(Models, AdamFollowsLibTorch) {
  Recorded reference, theirs, ours;
  const auto options = torch::optim::AdamOptions(0.01).weight_decay(0.1);
  torch::optim::Adam eager(reference->parameters(), options);
  expect_follows(reference, eager, theirs, torch::optim::Adam(theirs->parameters(), options));
  Recorded again;
  torch::optim::Adam eager_again(again->parameters(), options);
  expect_follows(again, eager_again, ours,
                 optim::Adam(ours->parameters(), {.lr = 0.01, .weight_decay = 0.1}));
}

TEST(Models, AdamWAndRMSpropFollowLibTorch) {
  Recorded reference, ours;
  torch::optim::AdamW eager(reference->parameters(), torch::optim::AdamWOptions(0.01));
  expect_follows(reference, eager, ours, torch::optim::AdamW(ours->parameters(), 0.01));
  Recorded second, our_second;
  const auto options = torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true);
  torch::optim::RMSprop rmsprop(second->parameters(), options);
  expect_follows(second, rmsprop, our_second,
                 torch::optim::RMSprop(our_second->parameters(), options));
}

TEST(Models, LambFollowsItsFormula) {
  const double b1 = 0.9, b2 = 0.999;
  Recorded module;
  const at::Tensor a = module->a, b = module->b;
  std::vector<at::Tensor> weights = {a.detach().to(at::kDouble), b.detach().to(at::kDouble)};
  std::vector<at::Tensor> first = {torch::zeros_like(weights[0]), torch::zeros_like(weights[1])};
  std::vector<at::Tensor> second = {torch::zeros_like(weights[0]), torch::zeros_like(weights[1])};
  const std::array lr = {0.01, 0.1}, decay = {0.01, 0.2};
  auto training = trainingModel(
      module, {},
      optim::LAMB({{{a}, {.lr = lr[0]}}, {{b}, {.lr = lr[1], .weight_decay = decay[1]}}}));
  for (int step = 1; step <= 20; ++step) {
    const auto [grad_a, grad_b] = recorded_gradients(step);
    training(grad_a, grad_b);
    const std::array grads = {grad_a[0].to(at::kDouble), grad_b[0].to(at::kDouble)};
    for (size_t i = 0; i < 2; ++i) {
      first[i] = b1 * first[i] + (1 - b1) * grads[i];
      second[i] = b2 * second[i] + (1 - b2) * grads[i] * grads[i];
      const auto way = first[i] / (1 - std::pow(b1, step)) /
                           ((second[i] / (1 - std::pow(b2, step))).sqrt() + 1e-8) +
                       decay[i] * weights[i];
      weights[i] = weights[i] - lr[i] * (weights[i].norm() / way.norm()) * way;
    }
  }
  EXPECT_LE(relative_error(training.module()->a, weights[0]), 1e-6);
  EXPECT_LE(relative_error(training.module()->b, weights[1]), 1e-6);
}

struct Reads : nn::Module {
  std::function<void(const at::Tensor&)> look;
  explicit Reads(std::function<void(const at::Tensor&)> how) : look(std::move(how)) {}
  at::Tensor forward(const at::Tensor& x) {
    look(x);
    look(x * 2);
    return x + 1;
  }
};

TEST(Models, ReadingAValueIsRefused) {
  const std::vector<std::function<void(const at::Tensor&)>> ways = {
      [](const at::Tensor& x) { x.sum().item<float>(); },
      [](const at::Tensor& x) { x.accessor<float, 1>(); },
      [](const at::Tensor& x) { static_cast<void>(x.data_ptr<float>()[0]); },
      [](const at::Tensor& x) { std::ostringstream() << x; },
      [](const at::Tensor& x) {
        if (x.any().item<bool>()) throw std::logic_error("a value was made up");
      },
  };
  for (const auto& way : ways) {
    auto inference = inferenceModel(std::make_shared<Reads>(way));
    try {
      inference(torch::ones({2}));
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("looked at the value"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Models, AForwardThatThrowsLeavesNoTrace) {
  BatchNormCnn module;
  const auto before = copy_of(module);
  struct Throws : nn::Module {
    BatchNormCnn inner;
    explicit Throws(BatchNormCnn m) : inner(register_module("inner", std::move(m))) {}
    Pair forward(const at::Tensor& x, const at::Tensor& y) {
      inner->forward(x, y);
      throw std::out_of_range("the user's own");
    }
  };
  auto training = trainingModel(std::make_shared<Throws>(module));
  const auto [images, labels] = batch(0);
  EXPECT_THROW(training(images, labels), std::out_of_range);
  const auto now = weights_of(module), then = weights_of(before);
  for (size_t i = 0; i < now.size(); ++i) {
    EXPECT_TRUE(torch::equal(now[i].tensor, then[i].tensor)) << now[i].name;
    EXPECT_FALSE(now[i].tensor.grad().defined());
  }
}

TEST(Models, NodesCarryTheUsersLine) {
  SeedCnn module;
  auto training = trainingModel(module);
  const auto [images, labels] = batch(0);
  training.compile(images, labels);
  bool conv_found = false;
  for (const auto& node : training.executor().executable().graph().nodes()) {
    if (node.op != "conv") continue;
    conv_found = true;
    EXPECT_NE(node.origin.file.find("models_test.cpp"), std::string::npos) << node.origin.file;
    EXPECT_GT(node.origin.line, 0);
    EXPECT_TRUE(node.origin.module.starts_with("conv")) << node.origin.module;
  }
  EXPECT_TRUE(conv_found);
}

struct BlockImpl : nn::Module {
  nn::ReLU relu;
  nn::MaxPool2d pool{2};
  BlockImpl() {
    register_module("relu", relu);
    register_module("pool", pool);
  }
  at::Tensor forward(const at::Tensor& x) { return pool(relu(x)); }
};
TORCH_MODULE(Block);

struct WithoutWeightsImpl : nn::Module {
  Block block;
  nn::Sequential tail{nn::Flatten(), nn::Linear(196, 16), nn::Tanh(), nn::Linear(16, 10),
                      nn::Tanh()};
  nn::Sigmoid first, second;
  WithoutWeightsImpl() {
    register_module("block", block);
    register_module("tail", tail);
    register_module("first", first);
    register_module("second", second);
  }
  Pair forward(const at::Tensor& images, const at::Tensor& labels) {
    const auto x = second(first(tail->forward(block(images)).exp()));
    return {x, torch::nn::functional::cross_entropy(x, labels)};
  }
};
TORCH_MODULE(WithoutWeights);

TEST(Models, NodesCarryTheUsersModule) {
  WithoutWeights module;
  auto training = trainingModel(module);
  const auto [images, labels] = batch(0);
  training.compile(images, labels);
  std::map<std::string, std::vector<std::string>> paths;
  for (const auto& node : training.executor().executable().graph().nodes()) {
    if (!node.origin.backward) paths[node.op].push_back(node.origin.module);
  }
  using Paths = std::vector<std::string>;
  EXPECT_EQ(paths["relu"], Paths{"block.relu"});
  EXPECT_EQ(paths["max_pool2d_with_indices"], Paths{"block.pool"});
  EXPECT_EQ(paths["tanh"], (Paths{"tail.2", "tail.4"}));
  EXPECT_EQ(paths["exp"], Paths{""});
  EXPECT_EQ(paths["sigmoid"], (Paths{"", ""}));  // which of two, the stack does not tell
}

struct DivergenceImpl : nn::Module {
  nn::Linear fc{6, 4};
  DivergenceImpl() { register_module("fc", fc); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& target) {
    namespace F = torch::nn::functional;
    return F::kl_div(torch::log_softmax(fc(x), 1), torch::softmax(target, 1),
                     F::KLDivFuncOptions().reduction(torch::kBatchMean));
  }
};
TORCH_MODULE(Divergence);

TEST(Models, TheBatchMeanOfADivergenceIsTheLoss) {
  torch::manual_seed(4);
  Divergence module, reference = copy_of(module);
  const auto x = torch::randn({8, 6}), target = torch::randn({8, 4});
  auto training = trainingModel(module, {}, optim::SGD(module->parameters(), {.lr = 0.5}));
  const at::Tensor loss = training(x, target);
  const at::Tensor expected = reference->forward(x, target);
  expected.backward();
  EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 1e-6);
  const at::Tensor wanted = reference->fc->weight - 0.5 * reference->fc->weight.grad();
  EXPECT_TRUE(torch::allclose(training.module()->fc->weight, wanted, 1e-5, 1e-6));
}

TEST(WeightsFile, RoundTripAndErrors) {
  const auto folder = std::filesystem::temp_directory_path() / "tessera_weights_test";
  std::filesystem::create_directories(folder);
  BatchNormCnn a, b;
  save_weights(weights_of(a), folder / "a.pth");
  load_weights(weights_of(b), folder / "a.pth");
  EXPECT_TRUE(torch::equal(a->fc->weight, b->fc->weight));
  Mlp other;
  const auto before = other->a->weight.clone();
  EXPECT_THROW(load_weights(weights_of(other), folder / "a.pth"), Error);
  EXPECT_TRUE(torch::equal(before, other->a->weight));
  EXPECT_THROW(load_weights(weights_of(b), folder / "missing.pth"), Error);
  EXPECT_THROW(save_weights(weights_of(a), folder / "no" / "folder.pth"), Error);
  std::filesystem::resize_file(folder / "a.pth", 100);
  EXPECT_THROW(load_weights(weights_of(b), folder / "a.pth"), Error);
  std::filesystem::remove_all(folder);
}

TEST(DataLoaderTest, CombinesAndShuffles) {
  Options options;
  options.deviceIterations(2);
  options.Training().gradientAccumulation(2);
  DataLoader loader(options, {torch::arange(22), torch::arange(22) * 2},
                    {.batch_size = 2, .shuffle = true});
  EXPECT_EQ(loader.combinedBatchSize(), 8);
  EXPECT_EQ(loader.size(), 2);
  std::set<int64_t> seen;
  for (const auto& batch : loader) {
    EXPECT_TRUE(torch::equal(batch[0] * 2, batch[1]));
    for (int64_t i = 0; i < 8; ++i) seen.insert(batch[0][i].item<int64_t>());
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_THROW(options.deviceIterations(1), Error);
}

}  // namespace
}  // namespace tessera
