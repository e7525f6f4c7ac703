// Normalisation by statistics of a region, and its gradients, in float32. Statistics are summed in
// double precision. Tensors that are optional are looked at only where they are `present`;
// gradients that are not wanted are not present in the results.
#pragma once

#include "tessera/base/tensor_view.h"
#include "tessera/base/thread_pool.h"

namespace tessera::kernels {

// Over everything but the channels of [batch, channels, ...].
struct BatchNorm {
  TensorView input, weight, bias, running_mean, running_var;
  bool training = false;
  double momentum = 0, eps = 0;
  TensorView out;
  TensorView save_mean, save_invstd;  // written in training only
  TensorView new_mean, new_var;       // may be the memory of running_mean and running_var
};
void batch_norm(const BatchNorm& norm, ThreadPool& pool);

struct BatchNormBackward {
  TensorView grad, input, weight, running_mean, running_var, save_mean, save_invstd;
  bool training = false;
  double eps = 0;
  TensorView grad_input, grad_weight, grad_bias;
};
void batch_norm_backward(const BatchNormBackward& norm, ThreadPool& pool);

// Over rows: `mean` and `rstd` have one element for each.
struct LayerNorm {
  TensorView input, weight, bias;
  double eps = 0;
  TensorView out, mean, rstd;
};
void layer_norm(const LayerNorm& norm, ThreadPool& pool);

struct LayerNormBackward {
  TensorView grad, input, mean, rstd, weight;
  TensorView grad_input, grad_weight, grad_bias;
};
void layer_norm_backward(const LayerNormBackward& norm, ThreadPool& pool);

// Over groups of neighbouring channels of one image: `mean` and `rstd` are [batch, groups].
struct GroupNorm {
  TensorView input, weight, bias;
  int64_t batch = 0, channels = 0, groups = 1;
  double eps = 0;
  TensorView out, mean, rstd;
};
void group_norm(const GroupNorm& norm, ThreadPool& pool);

struct GroupNormBackward {
  TensorView grad, input, mean, rstd, weight;
  int64_t batch = 0, channels = 0, groups = 1;
  TensorView grad_input, grad_weight, grad_bias;
};
void group_norm_backward(const GroupNormBackward& norm, ThreadPool& pool);

}  // namespace tessera::kernels
