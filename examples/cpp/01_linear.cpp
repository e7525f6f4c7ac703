// Fits a straight line.
#include <tessera/tessera.h>
#include <torch/torch.h>

struct Line : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(1, 1));

  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor y) {
    torch::Tensor out = linear(x);
    return {out, torch::mse_loss(out, y)};
  }
};

int main() {
  torch::Tensor x = torch::linspace(-1, 1, 64).reshape({64, 1});
  torch::Tensor y = 3 * x + 1;

  auto model = std::make_shared<Line>();
  tessera::optim::SGD optimizer(model->parameters(), {.lr = 0.1});
  auto training = tessera::trainingModel(model, {}, optimizer);
  torch::Tensor loss;
  for (int step = 0; step < 200; ++step) {
    loss = training(x, y).second;
  }
  return loss.item<float>() < 1e-4 ? 0 : 1;
}
