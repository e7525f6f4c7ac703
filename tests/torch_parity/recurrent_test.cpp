// Recurrent networks and the CTC loss, which capture makes of operators of our own, against
// PyTorch: values and gradients, and that nothing is taken apart.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tessera/api/model.h"
#include "tessera/ir/graph.h"
#include "tessera/passes/add_optimizer.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"
#include "tessera/torch/capture.h"
#include "tessera/torch/convert.h"
#include "tests/torch_parity/relative_error.h"

namespace tessera {
namespace {

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<at::Tensor(const Tensors&)>;

Tensors copies(const Tensors& tensors, at::ScalarType type) {
  Tensors out;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(tensor.is_floating_point() ? tensor.detach().to(type, false, true) : tensor);
    if (tensor.is_floating_point()) out.back().requires_grad_();
  }
  return out;
}

// The loss and after it the gradients, by PyTorch.
Tensors eager(const Forward& forward, const Tensors& tensors, at::ScalarType type) {
  const Tensors leaves = copies(tensors, type);
  const at::Tensor loss = forward(leaves);
  torch::autograd::backward({loss}, {});
  Tensors results = {loss.detach()};
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) results.push_back(leaf.grad());
  }
  return results;
}

struct Ours {
  Tensors results;
  std::map<std::string, int> nodes;  // by operator
};

Ours captured(const Forward& forward, const Tensors& tensors) {
  const Tensors leaves = copies(tensors, at::kFloat);
  CaptureRequest request;
  std::vector<std::string> wanted = {""};
  for (size_t i = 0; i < leaves.size(); ++i) {
    request.parameters.push_back({fmt::format("x{}", i), leaves[i]});
    if (leaves[i].requires_grad()) wanted.push_back(gradient_name(fmt::format("x{}", i)));
  }
  request.training = true;
  request.forward = [&](const Tensors&) {
    return Tensors{identity_loss(forward(leaves), LossReduction::none)};
  };
  Capture capture_result = capture(request);
  Ours ours;
  for (const Node& node : capture_result.graph.nodes()) ++ours.nodes[node.op];
  wanted[0] =
      capture_result.graph.outputs()[static_cast<size_t>(capture_result.outputs[0].graph_output)]
          .name;
  const auto executable = compile(std::move(capture_result.graph));
  Session session(executable, 2);
  for (size_t i = 0; i < capture_result.states.size(); ++i) {
    const auto type = scalar_type_of(executable->states()[i].type.dtype);
    const at::Tensor value = capture_result.states[i].host.detach().to(type).contiguous();
    session.write_state(i, {static_cast<std::byte*>(value.data_ptr()), value.nbytes()});
  }
  RunRequest run;
  std::map<std::string, at::Tensor> outputs;
  for (const auto& output : executable->outputs()) {
    at::Tensor& host = outputs[output.name];
    host = at::zeros(output.type.shape, scalar_type_of(output.type.dtype));
    run.outputs.push_back({static_cast<std::byte*>(host.data_ptr()), OutputMode::final_value, 1});
  }
  session.run(run);
  for (const std::string& name : wanted) ours.results.push_back(outputs.at(name));
  return ours;
}

std::map<std::string, int> expect_parity(const Forward& forward, const Tensors& tensors) {
  const Tensors exact = eager(forward, tensors, at::kDouble);
  const Tensors theirs = eager(forward, tensors, at::kFloat);
  const Ours ours = captured(forward, tensors);
  EXPECT_EQ(ours.results.size(), exact.size());
  for (size_t i = 0; i < std::min(ours.results.size(), exact.size()); ++i) {
    EXPECT_LE(relative_error(ours.results[i], exact[i]),
              3 * relative_error(theirs[i], exact[i]) + 1e-5)
        << "result " << i;
  }
  return ours.nodes;
}

at::Tensor weighted_sum(const at::Tensor& x) {
  const at::Tensor weights = (at::arange(x.numel(), x.options()) % 7) * 0.25 - 0.625;
  return (x.flatten() * weights).sum();
}

struct Network {
  int64_t layers = 2;
  bool bidirectional = true, biases = true, batch_first = false;
};

class Recurrent : public testing::TestWithParam<Network> {
 protected:
  static constexpr int64_t time = 6, batch = 7, features = 5, hidden = 9;

  // The input, the states, the weights.
  static Tensors tensors(int64_t gates, int64_t states) {
    at::manual_seed(1);
    const Network& network = GetParam();
    const int64_t directions = network.bidirectional ? 2 : 1;
    Tensors out = {network.batch_first ? at::randn({batch, time, features})
                                       : at::randn({time, batch, features})};
    for (int64_t i = 0; i < states; ++i) {
      out.push_back(at::randn({network.layers * directions, batch, hidden}));
    }
    for (int64_t i = 0; i < network.layers * directions; ++i) {
      const int64_t in = i < directions ? features : directions * hidden;
      out.push_back(at::randn({gates * hidden, in}) * 0.4);
      out.push_back(at::randn({gates * hidden, hidden}) * 0.4);
      if (!network.biases) continue;
      out.push_back(at::randn({gates * hidden}));
      out.push_back(at::randn({gates * hidden}));
    }
    return out;
  }

  template <typename Call>
  static void check_one_state(int64_t gates, const std::string& op, const Call& call) {
    const Network& network = GetParam();
    const auto nodes = expect_parity(
        [&](const Tensors& x) {
          const auto [output, hn] =
              call(x[0], x[1], at::TensorList(x).slice(2), network.biases, network.layers, 0.0,
                   true, network.bidirectional, network.batch_first);
          return weighted_sum(output) + weighted_sum(hn);
        },
        tensors(gates, 1));
    const int64_t parts = network.layers * (network.bidirectional ? 2 : 1);
    EXPECT_EQ(nodes.at(op), parts);
    EXPECT_EQ(nodes.at(op + "_backward"), parts);
    EXPECT_FALSE(nodes.contains("sigmoid") || nodes.contains("tanh") || nodes.contains("relu"));
  }
};

TEST_P(Recurrent, LstmFollowsPyTorch) {
  const Network& network = GetParam();
  const auto nodes = expect_parity(
      [&](const Tensors& x) {
        const auto [output, hn, cn] = at::lstm(
            x[0], at::TensorList(x).slice(1, 2), at::TensorList(x).slice(3), network.biases,
            network.layers, 0, true, network.bidirectional, network.batch_first);
        return weighted_sum(output) + weighted_sum(hn) + weighted_sum(cn);
      },
      tensors(4, 2));
  const int64_t parts = network.layers * (network.bidirectional ? 2 : 1);
  EXPECT_EQ(nodes.at("lstm"), parts);
  EXPECT_EQ(nodes.at("lstm_backward"), parts);
  EXPECT_FALSE(nodes.contains("sigmoid") || nodes.contains("tanh"));
}

TEST_P(Recurrent, GruFollowsPyTorch) {
  check_one_state(3, "gru", [](auto&&... arguments) { return at::gru(arguments...); });
}

TEST_P(Recurrent, PlainCellsFollowPyTorch) {
  check_one_state(1, "rnn", [](auto&&... arguments) { return at::rnn_tanh(arguments...); });
  check_one_state(1, "rnn", [](auto&&... arguments) { return at::rnn_relu(arguments...); });
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Recurrent,
    testing::Values(Network{.layers = 1, .bidirectional = false}, Network{},
                    Network{.layers = 2, .bidirectional = false, .batch_first = true},
                    Network{.layers = 1, .biases = false}));

TEST(CtcLoss, FollowsPyTorch) {
  at::manual_seed(2);
  const Tensors tensors = {at::randn({12, 4, 6}), at::randint(1, 6, {4, 5}),
                           at::tensor({12, 9, 3, 12}, at::kLong),
                           at::tensor({5, 2, 3, 0}, at::kLong)};
  for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
    const auto nodes = expect_parity(
        [&](const Tensors& x) {
          return at::ctc_loss(x[0].log_softmax(2), x[1], x[2], x[3], 0, reduction, true);
        },
        tensors);
    EXPECT_EQ(nodes.at("ctc_loss"), 1);
    EXPECT_EQ(nodes.at("ctc_loss_backward"), 1);
  }
}

}  // namespace
}  // namespace tessera
