// Trains and serves a classifier in half precision: weights, activations and gradients are 16-bit
// numbers, gradients are scaled so that small ones are not lost, and results are rounded by chance.
#include <tessera/tessera.h>
#include <torch/torch.h>

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

int main() {
  torch::manual_seed(0);
  auto model = std::make_shared<Classifier>();
  model->to(torch::kHalf);

  tessera::Options options;
  options.Precision().enableStochasticRounding(true);
  options.randomSeed(0);
  tessera::optim::Adam optimizer(model->parameters(), {.lr = 0.02, .loss_scaling = 1024.0});
  auto training = tessera::trainingModel(model, options, optimizer);
  torch::Tensor x = torch::rand({1024, 2}) * 2 - 1;
  for (int step = 0; step < 300; ++step) training(x.to(torch::kHalf), labels_of(x));
  training.copyWeightsToHost();

  auto inference = tessera::inferenceModel(model);
  torch::Tensor points = torch::rand({512, 2}) * 2 - 1;
  torch::Tensor scores = inference(points.to(torch::kHalf));
  const torch::Tensor right = scores.to(torch::kFloat).argmax(1).eq(labels_of(points));
  const double accuracy = right.to(torch::kDouble).mean().item<double>();
  std::cout << 100 * accuracy << "% of 512 new points are right\n";
  const bool halves =
      scores.scalar_type() == torch::kHalf && model->hidden->weight.scalar_type() == torch::kHalf;
  return halves && accuracy > 0.95 ? 0 : 1;
}
