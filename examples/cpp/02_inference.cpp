// Trains a classifier, saves its weights, and serves them from a new model: the two halves are
// usually two programs. The file is one of torch.save(), so either half may be written in Python.
#include <tessera/tessera.h>
#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <utility>

struct Classifier : torch::nn::Module {
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 2));

  torch::Tensor forward(torch::Tensor x) { return head(torch::tanh(hidden(x))); }

  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor labels) {
    torch::Tensor out = forward(x);
    return {out, torch::nn::functional::cross_entropy(out, labels)};
  }
};

// Which points lie in a circle.
torch::Tensor labels_of(const torch::Tensor& x) {
  return (x.norm(2, /*dim=*/1) < 0.8).to(torch::kLong);
}

void train_and_save(const std::filesystem::path& file) {
  auto model = std::make_shared<Classifier>();
  tessera::optim::Adam optimizer(model->parameters(), {.lr = 0.02});
  auto training = tessera::trainingModel(model, {}, optimizer);
  torch::Tensor x = torch::rand({1024, 2}) * 2 - 1;
  for (int step = 0; step < 300; ++step) training(x, labels_of(x));
  training.copyWeightsToHost();
  tessera::save_weights(tessera::weights_of(model), file);
}

double load_and_measure(const std::filesystem::path& file) {
  auto model = std::make_shared<Classifier>();
  tessera::load_weights(tessera::weights_of(model), file);
  model->eval();
  // A call takes sixteen batches of 32 points and returns all their results.
  auto inference = tessera::inferenceModel(model, tessera::Options().deviceIterations(16));
  torch::Tensor x = torch::rand({16 * 32, 2}) * 2 - 1;
  torch::Tensor said = inference(x).argmax(1);
  return said.eq(labels_of(x)).to(torch::kDouble).mean().item<double>();
}

int main() {
  torch::manual_seed(0);
  const auto file = std::filesystem::temp_directory_path() / "tessera_02_inference.pth";
  train_and_save(file);
  const double accuracy = load_and_measure(file);
  std::filesystem::remove(file);
  std::cout << 100 * accuracy << "% of 512 new points are right\n";
  return accuracy > 0.95 ? 0 : 1;
}
