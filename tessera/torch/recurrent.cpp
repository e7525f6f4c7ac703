#include "tessera/torch/recurrent.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/base/error.h"
#include "tessera/torch/own_operators.h"

namespace tessera::static_forms {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = c10::optional<Tensor>;

// [time, batch, width] as one matrix.
Tensor rows_of(const Tensor& sequence) { return sequence.reshape({-1, sequence.size(2)}); }

// The states that each step began with.
Tensor states_before(const Tensor& h0, const Tensor& output, bool reverse) {
  const int64_t steps = output.size(0);
  const Tensor first = h0.unsqueeze(0);
  if (steps == 1) return first;
  if (reverse) return at::cat({output.narrow(0, 1, steps - 1), first});
  return at::cat({first, output.narrow(0, 0, steps - 1)});
}

// Of the weights and biases, from the gradients of the gates at all steps.
struct WeightGradients {
  Tensor weight, bias_ih, bias_hh;

  WeightGradients(const Tensor& of_input, const Tensor& of_state, const Tensor& states,
                  bool has_biases) {
    weight = rows_of(of_state).t().mm(rows_of(states));
    if (!has_biases) return;
    bias_ih = rows_of(of_input).sum(0);
    bias_hh = of_input.is_same(of_state) ? bias_ih : rows_of(of_state).sum(0);
  }
};

// Gradients that do not arrive are no tensors; the operators take them as left out.
MaybeTensor if_defined(const Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : MaybeTensor();
}

// What backward reads of an output that the user may change in place, as PyTorch's own cells allow.
Tensor own_copy(const Tensor& output) { return output.clone(); }

struct LstmLayer : torch::autograd::Function<LstmLayer> {
  static variable_list forward(AutogradContext* context, const Tensor& projected, const Tensor& h0,
                               const Tensor& c0, const Tensor& weight, const MaybeTensor& bias_ih,
                               const MaybeTensor& bias_hh, bool reverse) {
    const auto results = call_own("lstm", {projected, h0, c0, weight, bias_ih, bias_hh, reverse});
    const Tensor &output = results[0], &cells = results[3], &gates = results[4];
    context->set_materialize_grads(false);
    context->save_for_backward({h0, c0, weight, own_copy(output), cells, gates});
    context->saved_data["reverse"] = reverse;
    context->saved_data["has_biases"] = bias_ih.has_value();
    return {output, results[1], results[2]};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &h0 = saved[0], &c0 = saved[1], &weight = saved[2], &output = saved[3];
    const bool reverse = context->saved_data["reverse"].toBool();
    const auto own =
        call_own("lstm_backward", {if_defined(grads[0]), if_defined(grads[1]), if_defined(grads[2]),
                                   c0, weight, saved[4], saved[5], reverse});
    const WeightGradients of(own[0], own[0], states_before(h0, output, reverse),
                             context->saved_data["has_biases"].toBool());
    return differentiable_once(
        {own[0], own[1], own[2], of.weight, of.bias_ih, of.bias_hh, Tensor()}, "lstm");
  }
};

struct GruLayer : torch::autograd::Function<GruLayer> {
  static variable_list forward(AutogradContext* context, const Tensor& projected, const Tensor& h0,
                               const Tensor& weight, const MaybeTensor& bias_ih,
                               const MaybeTensor& bias_hh, bool reverse) {
    const auto results = call_own("gru", {projected, h0, weight, bias_ih, bias_hh, reverse});
    context->set_materialize_grads(false);
    context->save_for_backward({h0, weight, own_copy(results[0]), results[2]});
    context->saved_data["reverse"] = reverse;
    context->saved_data["has_biases"] = bias_ih.has_value();
    return {results[0], results[1]};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &h0 = saved[0], &weight = saved[1], &output = saved[2], &gates = saved[3];
    const bool reverse = context->saved_data["reverse"].toBool();
    const auto own = call_own("gru_backward", {if_defined(grads[0]), if_defined(grads[1]), h0,
                                               weight, output, gates, reverse});
    const WeightGradients of(own[0], own[1], states_before(h0, output, reverse),
                             context->saved_data["has_biases"].toBool());
    return differentiable_once({own[0], own[2], of.weight, of.bias_ih, of.bias_hh, Tensor()},
                               "gru");
  }
};

struct RnnLayer : torch::autograd::Function<RnnLayer> {
  static variable_list forward(AutogradContext* context, const Tensor& projected, const Tensor& h0,
                               const Tensor& weight, const MaybeTensor& bias_ih,
                               const MaybeTensor& bias_hh, bool relu, bool reverse) {
    const auto results = call_own("rnn", {projected, h0, weight, bias_ih, bias_hh, relu, reverse});
    context->set_materialize_grads(false);
    context->save_for_backward({h0, weight, own_copy(results[0])});
    context->saved_data["relu"] = relu;
    context->saved_data["reverse"] = reverse;
    context->saved_data["has_biases"] = bias_ih.has_value();
    return {results[0], results[1]};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &h0 = saved[0], &weight = saved[1], &output = saved[2];
    const bool reverse = context->saved_data["reverse"].toBool();
    const auto own =
        call_own("rnn_backward", {if_defined(grads[0]), if_defined(grads[1]), weight, output,
                                  context->saved_data["relu"].toBool(), reverse});
    const WeightGradients of(own[0], own[0], states_before(h0, output, reverse),
                             context->saved_data["has_biases"].toBool());
    return differentiable_once(
        {own[0], own[1], of.weight, of.bias_ih, of.bias_hh, Tensor(), Tensor()}, "rnn");
  }
};

// One layer in one direction: its place among the states, its weights, and what the input gives.
struct Part {
  int64_t index;
  bool reverse;
  Tensor projected, weight;
  MaybeTensor bias_ih, bias_hh;
};

struct Network {
  at::TensorList params;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;

  // Calls run(part) for every layer and direction, which gives the part's output.
  template <typename Run>
  Tensor operator()(const Tensor& input, const Run& run) const {
    const int64_t directions = bidirectional ? 2 : 1, of_part = has_biases ? 4 : 2;
    check(static_cast<int64_t>(params.size()) == layers * directions * of_part,
          "a recurrent network of {} layers needs {} weights and biases, got {}", layers,
          layers * directions * of_part, params.size());
    Tensor x = batch_first ? input.transpose(0, 1) : input;
    for (int64_t layer = 0; layer < layers; ++layer) {
      if (layer > 0 && dropout > 0 && train) x = at::dropout(x, dropout, true);
      const Tensor rows = rows_of(x);
      std::vector<Tensor> outputs;
      for (int64_t direction = 0; direction < directions; ++direction) {
        const int64_t index = layer * directions + direction;
        const auto param = [&](int64_t i) {
          return params[static_cast<size_t>(index * of_part + i)];
        };
        Part part{index, direction == 1, rows.mm(param(0).t()), param(1), {}, {}};
        part.projected = part.projected.view({x.size(0), x.size(1), -1});
        if (has_biases) {
          part.bias_ih = param(2);
          part.bias_hh = param(3);
        }
        outputs.push_back(run(part));
      }
      x = directions == 1 ? outputs[0] : at::cat(outputs, 2);
    }
    return batch_first ? x.transpose(0, 1) : x;
  }
};

template <typename Layer, typename... Flags>
std::tuple<Tensor, Tensor> run_without_cells(const Network& network, const Tensor& input,
                                             const Tensor& hx, Flags... flags) {
  std::vector<Tensor> hn;
  const Tensor output = network(input, [&](const Part& part) {
    const auto results = Layer::apply(part.projected, hx.select(0, part.index), part.weight,
                                      part.bias_ih, part.bias_hh, flags..., part.reverse);
    hn.push_back(results[1]);
    return results[0];
  });
  return {output, at::stack(hn)};
}

// PyTorch has the words for what is wrong with other inputs.
bool is_sequence(const Tensor& input) { return input.dim() == 3 && input.numel() > 0; }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, at::TensorList hx,
                                        at::TensorList params, bool has_biases, int64_t num_layers,
                                        double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const bool plain = is_sequence(input) && hx.size() == 2 && hx[0].sizes() == hx[1].sizes();
  if (!plain) {
    return at::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                    batch_first);
  }
  const Network network{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  std::vector<Tensor> hn, cn;
  const Tensor output = network(input, [&](const Part& part) {
    const auto results =
        LstmLayer::apply(part.projected, hx[0].select(0, part.index), hx[1].select(0, part.index),
                         part.weight, part.bias_ih, part.bias_hh, part.reverse);
    hn.push_back(results[1]);
    cn.push_back(results[2]);
    return results[0];
  });
  return {output, at::stack(hn), at::stack(cn)};
}

std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, at::TensorList params,
                               bool has_biases, int64_t num_layers, double dropout, bool train,
                               bool bidirectional, bool batch_first) {
  if (!is_sequence(input)) {
    return at::gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                   batch_first);
  }
  const Network network{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  return run_without_cells<GruLayer>(network, input, hx);
}

std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& input, const Tensor& hx, at::TensorList params,
                                    bool has_biases, int64_t num_layers, double dropout, bool train,
                                    bool bidirectional, bool batch_first) {
  if (!is_sequence(input)) {
    return at::rnn_tanh(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                        batch_first);
  }
  const Network network{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  return run_without_cells<RnnLayer>(network, input, hx, false);
}

std::tuple<Tensor, Tensor> rnn_relu(const Tensor& input, const Tensor& hx, at::TensorList params,
                                    bool has_biases, int64_t num_layers, double dropout, bool train,
                                    bool bidirectional, bool batch_first) {
  if (!is_sequence(input)) {
    return at::rnn_relu(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                        batch_first);
  }
  const Network network{params, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  return run_without_cells<RnnLayer>(network, input, hx, true);
}

}  // namespace tessera::static_forms
