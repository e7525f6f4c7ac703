// Captures one step of a model, forward and (for training) loss and backward, as a graph, without
// computing anything. Works for LibTorch and Python modules alike: both call ATen.
//
// The graph's data inputs are the example inputs in order. Its outputs are "0", "1", ... for what
// forward returned, "Input___<i>" for inputs that forward changed in place, "Check___<i>" for what
// must be computed because it may fail, and "Gradient___<parameter>" for every parameter the loss
// depends on. Its states are the parameters and buffers it uses.
//
// Afterwards, and when forward throws, the module is as before bit for bit: parameters, buffers,
// .grad, and PyTorch's random state.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/torch/cpp_origin.h"
#include "tessera/torch/recorder.h"

namespace tessera {

// Runs a module's forward on one micro-batch and returns its tensors, flattened.
using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

struct CaptureRequest {
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::vector<NamedTensor> example_inputs;  // one micro-batch; see example_values.h
  Forward forward;
  bool training = false;
  bool scaled_loss = false;          // passes are to replace the loss's gradient
  FrontEnd front_end;                // one that cannot locate: asks the C++ stack,
  std::vector<ModuleClass> modules;  // in which these modules may be running
};

struct CapturedOutput {
  int64_t graph_output = -1;     // or, where it is negative,
  at::Tensor constant;           // a tensor that needs no program,
  bool made_in_forward = false;  // made anew for every call, or the user's own
};

struct ChangedInput {
  size_t input = 0;
  size_t graph_output = 0;
};

struct Capture {
  Graph graph;
  std::vector<BoundState> states;  // one for each of graph.states()
  std::vector<CapturedOutput> outputs;
  std::vector<ChangedInput> changed_inputs;
  ValueId loss;                       // of a training step
  ValueId loss_gradient;              // ones: where backward begins, where it is to be replaced
  std::vector<NamedTensor> borrowed;  // weights of models that forward called as below: constants
};

Capture capture(const CaptureRequest& request);

// Runs another model's forward as a part of the capture that is at work on this thread. As when a
// program runs it, it sees copies of its inputs, and its results are copies without a gradient, of
// types that programs have; its losses are results like others. Its weights are constants, except
// for those that the captured model has as well. Error where it changes an input or a weight.
std::vector<at::Tensor> capture_inside(const CaptureRequest& request);

// True while forward is being captured on this thread.
bool is_capturing();

}  // namespace tessera
