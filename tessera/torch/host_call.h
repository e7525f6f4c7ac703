// Operators without a row: how PyTorch's own kernels are asked for shapes while capturing, and run
// in a program. A node `aten` gives the new values of the tensors that the call writes to, in the
// order of the arguments, then the tensors it makes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "tessera/torch/aten_call.h"

namespace tessera {

// From now on programs of this process may have such nodes.
void use_pytorch_for_host_calls();

// Tensors among the arguments that the call writes to, lists included.
std::vector<at::Tensor> written_tensors(const AtenCall& call);

// The argument whose (new) value is returned as that result; nothing where the result is fresh.
std::optional<size_t> returned_argument(const c10::FunctionSchema& schema, size_t result);

// What the call returns by PyTorch's rule for shapes; throws where there is none.
torch::jit::Stack shapes_only(const AtenCall& call);

// Whether PyTorch's kernel can be tried for nothing.
bool has_few_elements(const AtenCall& call);

// What PyTorch's kernel makes of made-up values: zeros, or where it refuses those, ones that can be
// inverted, or ones. Throws PyTorch's own error where it refuses all of them.
torch::jit::Stack trial_run(const AtenCall& call, const std::function<void()>& forget_error);

// PyTorch has few kernels for floats of 16 bits. What it makes of such a call in float32, rounded
// once, where all values are there. The tensors are not written to.
bool computes_with_short_floats(const AtenCall& call);
torch::jit::Stack values_in_single(const AtenCall& call, const std::function<void()>& forget_error);

// What the call returns, with the right shapes and types and without meaning: by PyTorch's shape
// rule, else by running the kernel on made-up values. Throws PyTorch's own error where it refuses.
// `forget_error` is called when a shape rule has failed: one written in Python leaves its error
// behind.
torch::jit::Stack dry_run(const AtenCall& call, const std::function<void()>& forget_error);

}  // namespace tessera
