// LSTM, GRU and plain recurrent networks, a layer and direction at a time. PyTorch takes them apart
// into a dozen calls for every time step; here a layer is a product over all steps and one operator
// of our own. The arguments are those of aten::lstm.input and its kin.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace tessera::static_forms {

// Projections (proj_size) stay as PyTorch has them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList hx,
                                                    at::TensorList params, bool has_biases,
                                                    int64_t num_layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first);

std::tuple<at::Tensor, at::Tensor> gru(const at::Tensor& input, const at::Tensor& hx,
                                       at::TensorList params, bool has_biases, int64_t num_layers,
                                       double dropout, bool train, bool bidirectional,
                                       bool batch_first);

std::tuple<at::Tensor, at::Tensor> rnn_tanh(const at::Tensor& input, const at::Tensor& hx,
                                            at::TensorList params, bool has_biases,
                                            int64_t num_layers, double dropout, bool train,
                                            bool bidirectional, bool batch_first);

std::tuple<at::Tensor, at::Tensor> rnn_relu(const at::Tensor& input, const at::Tensor& hx,
                                            at::TensorList params, bool has_biases,
                                            int64_t num_layers, double dropout, bool train,
                                            bool bidirectional, bool batch_first);

}  // namespace tessera::static_forms
