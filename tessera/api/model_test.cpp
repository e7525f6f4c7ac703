// Wrapping in C++: the same rules as in Python, in the same words.
#include "tessera/api/model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

namespace tessera {
namespace {

namespace nn = torch::nn;

struct NetImpl : nn::Module {
  nn::Linear fc{3, 2};
  NetImpl() { register_module("fc", fc); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const auto y = fc(x);
    return {y, torch::mse_loss(y, torch::ones_like(y))};
  }
};
TORCH_MODULE(Net);

template <typename Function>
std::string message_of(ErrorKind kind, const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// spec: 1.1 trainingModel already wrapped, 1.4 destroy before compile
TEST(Model, TrainsOneModuleAtATime) {
  Net net;
  const auto x = torch::ones({4, 3});
  auto first = trainingModel(net);
  const auto wrap_again = [&] { trainingModel(net); };
  EXPECT_NE(message_of(ErrorKind::runtime, wrap_again).find("already been wrapped"),
            std::string::npos);
  first.destroy();  // not compiled: nothing happens
  EXPECT_NE(message_of(ErrorKind::runtime, wrap_again).find("already been wrapped"),
            std::string::npos);
  first(x);
  first.destroy();
  auto second = trainingModel(net);
  second(x);
}

struct DistillationImpl : nn::Module {
  nn::Linear student{3, 2};
  Model<Net>* teacher;
  explicit DistillationImpl(Model<Net>* model) : teacher(model) {
    register_module("student", student);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::mse_loss(student(x), std::get<0>((*teacher)(x)));
  }
};
TORCH_MODULE(Distillation);

TEST(Model, OfInferenceBecomesPartOfAnother) {
  Net net;
  const auto x = torch::randn({4, 3});
  auto teacher = inferenceModel(net);
  teacher(torch::randn({5, 3}));  // another shape
  Distillation module(&teacher);
  auto student = trainingModel(module, {}, optim::SGD(module->student->parameters(), {.lr = 0.1}));
  nn::Linear eager(3, 2);
  {
    const at::NoGradGuard no_grad;
    eager->weight.copy_(module->student->weight);
    eager->bias.copy_(module->student->bias);
  }
  torch::optim::SGD optimizer(eager->parameters(), 0.1);
  const at::Tensor wanted = std::get<0>(net->forward(x)).detach();
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = torch::mse_loss(eager(x), wanted);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(at::allclose(student(x), loss.detach()));
  }
  EXPECT_EQ(std::get<0>(teacher(torch::randn({5, 3}))).size(0), 5);  // its own program is as before
}

// spec: 1.1 trainingModel accepts executor, 1.1 inferenceModel accepts executor
TEST(Model, MayStandForItsModule) {
  Net net;
  const auto x = torch::randn({4, 3});
  auto training = trainingModel(net, {}, optim::SGD(net->parameters(), {.lr = 0.1}));
  training(x);
  auto inference = inferenceModel(training);
  training(x);
  const auto [output, loss] = inference(x);
  EXPECT_TRUE(torch::allclose(output, std::get<0>(training.module()->forward(x))));
  EXPECT_FALSE(training.copyWeightsToHostIfNeeded());
  training.destroy();
  auto again = trainingModel(inference);
  again(x);
}

// spec: 1.3 host edits need a push
TEST(Model, FollowsWeightsThatGetOtherMemory) {
  Net net;
  const auto x = torch::ones({4, 3});
  auto training = trainingModel(net, {}, optim::SGD(net->parameters(), {.lr = 0.1}));
  training(x);
  training.module()->fc->weight.set_data(torch::zeros({2, 3}));
  training.module()->fc->bias.set_data(torch::ones({2}));
  const auto [output, loss] = training(x);
  EXPECT_TRUE(torch::equal(output, torch::ones({4, 2})));
  training.module()->fc->bias.set_data(torch::full({2}, 3.0));
  training(x);
  EXPECT_TRUE(torch::allclose(training.module()->fc->bias, torch::full({2}, 2.8)));
  training.module()->fc->bias.set_data(torch::zeros({1}));
  EXPECT_NE(message_of(ErrorKind::user, [&] { training(x); }).find("'fc.bias' changed"),
            std::string::npos);
}

// An optimiser for another model would train nothing.
TEST(Model, RefusesTheOptimizerOfAnother) {
  Net net, other;
  auto training = trainingModel(net, {}, optim::SGD(other->parameters(), {.lr = 0.1}));
  EXPECT_NE(message_of(ErrorKind::user,
                       [&] {
                         training(torch::ones({4, 3}));
                       })
                .find("number 0 of group 0 (Float[2, 3]), number 1 of group 0 (Float[2])"),
            std::string::npos);
}

struct Nested : nn::Module {
  using Result =
      std::tuple<std::map<std::string, at::Tensor>, std::vector<std::pair<at::Tensor, int>>,
                 std::optional<at::Tensor>, std::optional<at::Tensor>, std::string>;
  Result forward(const at::Tensor& x) {
    return {{{"a", x + 1}, {"b", x * 2}}, {{x - 1, 7}, {x, 8}}, std::nullopt, x.sum(), "text"};
  }
};

// spec: 1.6 returned structure, 1.6 None output
TEST(Model, KeepsTheStructureOfResults) {
  auto model = inferenceModel(std::make_shared<Nested>());
  for (const double value : {1.0, 5.0}) {
    const auto x = torch::full({2}, value);
    const auto [map, list, none, sum, text] = model(x);
    EXPECT_TRUE(map.at("a").equal(x + 1));
    EXPECT_TRUE(map.at("b").equal(x * 2));
    ASSERT_EQ(list.size(), 2U);
    EXPECT_TRUE(list[0].first.equal(x - 1));
    EXPECT_EQ(list[1].second, 8);
    EXPECT_FALSE(none.has_value());
    EXPECT_EQ(sum->item<float>(), 2 * value);
    EXPECT_EQ(text, "text");
  }
}

struct Doubles : nn::Module {
  void forward(at::Tensor x) { x.mul_(2); }
};

// spec: 1.6 None output, 1.5 in-place on inputs
TEST(Model, MayReturnNothingAndChangeItsInput) {
  auto model = inferenceModel(std::make_shared<Doubles>());
  auto x = torch::ones({2, 3}).t();
  model(x);
  model(x);
  EXPECT_TRUE(x.equal(torch::full({3, 2}, 4.0)));
}

struct Sums : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.sum(); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return x.sum() + y.sum(); }
};

// spec: 1.5 changed inputs
TEST(Model, IsCompiledForItsInputsUntilItIsDestroyed) {
  auto model = inferenceModel(std::make_shared<Sums>());
  const auto x = torch::ones({2});
  EXPECT_EQ(model(x).item<float>(), 2);
  EXPECT_NE(message_of(ErrorKind::user, [&] { model(x, x); }).find("destroy()"), std::string::npos);
  EXPECT_NE(message_of(ErrorKind::user, [&] { model(torch::ones({3})); }).find("compiled for"),
            std::string::npos);
  model.destroy();
  EXPECT_EQ(model(x, x).item<float>(), 4);
}

// spec: 1.1 registerPreCompileHook, 1.1 registerPostCompileHook
TEST(CompileHooks, RunAroundEveryCompilationInOrder) {
  std::string seen;
  const auto first = registerPreCompileHook([&] { seen += "a"; });
  const auto second = registerPreCompileHook([&] { seen += "b"; });
  const auto after = registerPostCompileHook([&] { seen += "c"; });
  auto model = inferenceModel(Net());
  model(torch::ones({1, 3}));
  model(torch::ones({1, 3}));
  EXPECT_EQ(seen, "abc");
  first.remove();
  first.remove();
  model.destroy();
  EXPECT_THROW(model(torch::ones({1, 4})), Error);  // does not fit; the end is told all the same
  EXPECT_EQ(seen, "abcbc");
  second.remove();
  after.remove();
  model(torch::ones({1, 3}));
  EXPECT_EQ(seen, "abcbc");
  EXPECT_FALSE(message_of(ErrorKind::runtime, [] { registerPreCompileHook(nullptr); }).empty());
}

struct ConvsImpl : nn::Module {
  nn::Conv1d left{nn::Conv1dOptions(40, 2, 3).bias(false)},
      right{nn::Conv1dOptions(40, 2, 3).bias(false)};
  std::optional<std::vector<at::ScalarType>> types;
  int depth = 1;

  ConvsImpl() {
    register_module("left", left);
    register_module("right", right);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    if (!types) return {left(x), right(x)};
    std::vector<at::Tensor> results;
    const auto work = [&] {
      if (depth > 0) results = {left(x), right(x)};
    };
    MultiConv multi;
    multi.partialsTypes(*types);
    multi.run([&] { depth > 1 ? multi.run(work) : work(); });
    return results;
  }
};
TORCH_MODULE(Convs);

// spec: 6 MultiConv, 11 partials
TEST(MultiConv, GoesBeforeTheOptions) {
  torch::manual_seed(1);
  Convs convs;
  convs->to(torch::kHalf);
  const auto x = (4 * torch::randn({2, 40, 30})).to(torch::kHalf);
  const auto results = [&](std::optional<std::vector<at::ScalarType>> types, at::ScalarType type) {
    convs->types = std::move(types);
    Options options;
    options.Precision().setPartialsType(type);
    return inferenceModel(convs, options)(x);
  };
  const auto floats = results(std::nullopt, torch::kFloat);
  const auto halves = results(std::nullopt, torch::kHalf);
  EXPECT_FALSE(floats[0].equal(halves[0]) || floats[1].equal(halves[1]));
  const auto mixed = results({{torch::kHalf, torch::kFloat}}, torch::kFloat);
  EXPECT_TRUE(mixed[0].equal(halves[0]) && mixed[1].equal(floats[1]));
  const auto all = results({{torch::kFloat}}, torch::kHalf);
  EXPECT_TRUE(all[0].equal(floats[0]) && all[1].equal(floats[1]));
  const auto none = results(std::vector<torch::ScalarType>{}, torch::kHalf);
  EXPECT_TRUE(none[0].equal(halves[0]) && none[1].equal(halves[1]));
}

// spec: 6 MultiConv
TEST(MultiConv, SaysWhatItCannotBe) {
  Convs convs;
  const auto message = [&] {
    return message_of(ErrorKind::user, [&] { inferenceModel(convs)(torch::randn({2, 40, 30})); });
  };
  convs->types = {torch::kHalf, torch::kHalf, torch::kHalf};
  EXPECT_NE(message().find("has 3 types, but there are 2 convolutions"), std::string::npos);
  convs->types->clear();
  convs->depth = 2;
  EXPECT_NE(message().find("begins inside another one"), std::string::npos);
  convs->depth = 0;
  EXPECT_NE(message().find("no convolution in a MultiConv"), std::string::npos);
  EXPECT_TRUE(convs(torch::ones({2, 40, 30})).empty());  // on the host it is nothing
  EXPECT_NE(message_of(ErrorKind::value, [] { MultiConv().partialsTypes({torch::kDouble}); })
                .find("torch.float64"),
            std::string::npos);
}

// spec: 1.1 ipuHardwareIsAvailable, 1.1 ipuHardwareVersion
TEST(Hardware, IsVirtual) {
  unsetenv("POPTORCH_IPU_MODEL");
  unsetenv("POPTORCH_SMALL_IPU_MODEL");
  unsetenv("TESSERA_NUM_IPUS");
  EXPECT_TRUE(ipuHardwareIsAvailable() && ipuHardwareIsAvailable(16));
  EXPECT_FALSE(ipuHardwareIsAvailable(17) || ipuHardwareIsAvailable(0));
  EXPECT_EQ(ipuHardwareVersion(), 2);
  setenv("TESSERA_NUM_IPUS", "4", 1);
  EXPECT_FALSE(ipuHardwareIsAvailable(5));
  setenv("TESSERA_NUM_IPUS", "x", 1);
  EXPECT_FALSE(message_of(ErrorKind::value, [] { ipuHardwareIsAvailable(); }).empty());
  unsetenv("TESSERA_NUM_IPUS");
  setenv("POPTORCH_IPU_MODEL", "1", 1);
  EXPECT_FALSE(ipuHardwareIsAvailable());
  EXPECT_FALSE(message_of(ErrorKind::assertion, [] { ipuHardwareVersion(); }).empty());
  unsetenv("POPTORCH_IPU_MODEL");
}

}  // namespace
}  // namespace tessera
