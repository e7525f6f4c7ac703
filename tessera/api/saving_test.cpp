// Saving and loading in C++: the same rules as in Python, in the same words.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tessera/api/model.h"
#include "tessera/base/text_files_for_test.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

struct RegressionImpl : nn::Module {
  nn::Linear fc{3, 2};
  nn::Dropout drop{0.5};
  RegressionImpl() {
    register_module("fc", fc);
    register_module("drop", drop);
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, at::Tensor y) {
    const auto out = drop(fc(x));
    return {out, torch::mse_loss(out, y)};
  }
};
TORCH_MODULE(Regression);

class Saving : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static Options quiet() {
    Options options;
    options.showCompilationProgressBar(false).randomSeed(5);
    return options;
  }
  static Regression regression() {
    torch::manual_seed(0);
    return {};
  }
  Model<Regression> training(Regression module, const Options& options = quiet()) const {
    return trainingModel(module, options, optim::SGD(module->parameters(), {.lr = 0.1}));
  }
  std::vector<float> losses(Model<Regression>& model) const {
    std::vector<float> values;
    for (int i = 0; i < 3; ++i) values.push_back(std::get<1>(model(x_, y_)).item<float>());
    return values;
  }
  static std::string message_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.message();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("tessera_saving_" + std::to_string(getpid()));
  const std::string file_ = folder_ / "made" / "model.poptorch";
  const at::Tensor x_ = torch::arange(12).reshape({4, 3}).to(torch::kFloat) / 10;
  const at::Tensor y_ = torch::ones({4, 2});
};

// spec: 1.4 compileAndExport, 1.4 loadExecutable
TEST_F(Saving, AProgramIsLoadedInPlaceOfCompiling) {
  auto first = training(regression());
  first.compileAndExport(file_, x_, y_);
  const auto expected = losses(first);
  auto second = training(regression());
  second.loadExecutable(file_);
  EXPECT_TRUE(second.isCompiled());
  EXPECT_EQ(losses(second), expected);
}

// spec: 1.4 save
TEST_F(Saving, RandomNumbersGoOn) {
  auto first = training(regression());
  losses(first);
  first.save(file_);
  first.save(folder_);  // a folder: model.poptorch in it
  EXPECT_TRUE(fs::is_regular_file(folder_ / "model.poptorch"));
  auto second = training(regression());
  second.loadExecutable(file_);
  EXPECT_EQ(second.rng_state(), first.rng_state());
  first.save(file_, /*save_rng_state=*/false);
  auto third = training(regression());
  third.loadExecutable(file_);
  EXPECT_EQ(third.rng_state(), (std::vector<int64_t>{5}));
}

// spec: 9 option checks, 9 damaged files
TEST_F(Saving, WrongFilesAreRefused) {
  auto model = training(regression());
  EXPECT_NE(message_of([&] { model.save(file_); }).find("has not been compiled"),
            std::string::npos);
  model.compileAndExport(file_, x_, y_);
  EXPECT_NE(message_of([&] { model.loadExecutable(file_); }).find("compiled already"),
            std::string::npos);
  Options options = quiet();
  options.deviceIterations(2);
  auto other = training(regression(), options);
  EXPECT_NE(message_of([&] { other.loadExecutable(file_); }).find("deviceIterations(1)"),
            std::string::npos);
  EXPECT_FALSE(other.isCompiled());
  auto inference = inferenceModel(regression(), quiet());
  EXPECT_NE(message_of([&] { inference.loadExecutable(file_); }).find("a program for training"),
            std::string::npos);
  const std::string whole = text_of_file(file_);
  for (const size_t size : {size_t{0}, size_t{70}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(file_, std::ios::binary) << whole.substr(0, size);
    auto damaged = training(regression());
    EXPECT_NE(message_of([&] { damaged.loadExecutable(file_); }).find(file_), std::string::npos);
    EXPECT_FALSE(damaged.isCompiled());
  }
}

// spec: 9 offline targets, 9 options on load
TEST_F(Saving, OfflineTargetsAreDropped) {
  Options offline = quiet();
  offline.useOfflineIpuTarget();
  auto first = training(regression(), offline);
  first.compileAndExport(file_, x_, y_);
  auto second = training(regression(), offline);
  second.loadExecutable(file_);
  auto plain = training(regression());
  EXPECT_EQ(losses(second), losses(plain));
}

// spec: 2.2 enableExecutableCaching
TEST_F(Saving, ProgramsAreCached) {
  Options options = quiet();
  options.enableExecutableCaching(folder_.string());
  auto first = training(regression(), options);
  auto second = training(regression(), options);
  EXPECT_EQ(losses(first), losses(second));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace tessera
