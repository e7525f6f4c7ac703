// The network that the programs about Fashion-MNIST train, and the data set as tensors. All of it
// is in the header: the library beside it is built where there is no PyTorch, too.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "examples/cpp/support/idx.h"

namespace tessera_examples {

constexpr int64_t image_side = 28;

struct ClassificationModel : torch::nn::Module {
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 5, 3));
  torch::nn::MaxPool2d pool =
      register_module("pool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2)));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(5, 12, 5));
  torch::nn::GroupNorm norm = register_module("norm", torch::nn::GroupNorm(3, 12));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(972, 100));
  torch::nn::ReLU relu = register_module("relu", torch::nn::ReLU());
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(100, 10));
  torch::nn::LogSoftmax log_softmax = register_module("log_softmax", torch::nn::LogSoftmax(1));
  torch::nn::NLLLoss loss = register_module("loss", torch::nn::NLLLoss());

  // For inference: the logarithms of the classes' probabilities.
  torch::Tensor forward(torch::Tensor x) {
    x = pool(relu(conv1(x)));
    x = norm(relu(conv2(x)));
    x = torch::flatten(x, 1);
    x = relu(fc1(x));
    return log_softmax(fc2(x));
  }

  // For training: also the loss.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& images,
                                                  const torch::Tensor& labels) {
    torch::Tensor output = forward(images);
    return {output, loss(output, labels)};
  }
};
using Model = std::shared_ptr<ClassificationModel>;

inline ImageSet read_images(const std::filesystem::path& folder, Split split) {
  ImageSet set = read_image_set(folder, split);
  if (set.rows != image_side || set.cols != image_side) {
    throw std::runtime_error(
        fmt::format("The images in {} have {} x {} pixels, but the network takes {} x {}; point "
                    "--data at Fashion-MNIST.",
                    folder.string(), set.rows, set.cols, image_side, image_side));
  }
  return set;
}

// All of them, or the first `limit`.
inline ImageSet read_training_images(const std::filesystem::path& folder,
                                     std::optional<int64_t> limit) {
  ImageSet set = read_images(folder, Split::train);
  set.count = std::min(set.count, limit.value_or(set.count));
  set.pixels.resize(static_cast<size_t>(set.count * image_side * image_side));
  set.labels.resize(static_cast<size_t>(set.count));
  return set;
}

// What the network sees of the pixels: -1 is black, 1 is white.
inline torch::Tensor image_tensor(std::vector<uint8_t> pixels) {
  const auto count = static_cast<int64_t>(pixels.size()) / (image_side * image_side);
  return torch::from_blob(pixels.data(), {count, 1, image_side, image_side}, torch::kUInt8)
      .to(torch::kFloat)
      .div_(255)
      .sub_(0.5)
      .div_(0.5);
}

inline torch::Tensor label_tensor(std::vector<uint8_t> labels) {
  return torch::from_blob(labels.data(), {static_cast<int64_t>(labels.size())}, torch::kUInt8)
      .to(torch::kLong);
}

inline void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("Cannot create the folder {}: {}; choose another with --output.",
                    folder.string(), error.message()));
  }
}

}  // namespace tessera_examples
