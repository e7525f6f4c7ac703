// What PyTorch says of a call before it runs: whether it is legal, and what comes out of it. Rows
// say how to compute; whether PyTorch would, and in which type, is asked here.
#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <optional>

#include "tessera/torch/aten_call.h"

namespace tessera {

// The call's results by PyTorch's rule for tensors without memory; nothing where there is no such
// rule. An Error in PyTorch's words where PyTorch refuses the call. `forget_error` is as for
// dry_run.
std::optional<torch::jit::Stack> ruled_results(const AtenCall& call,
                                               const std::function<void()>& forget_error);

// Whether the element type that a row gives to its result is PyTorch's.
bool agree(const AtenCall& call, const torch::jit::Stack& pytorchs,
           const std::vector<TensorType>& rows);

// Whether only shapes could be wrong, of which rows know: the call makes a tensor out of floats, or
// out of floats of 16 bits of one type, and there are some in each.
bool is_all_floats(const AtenCall& call);

// An Error in PyTorch's words where PyTorch's kernel refuses the call whatever the values are.
void check_legal(const AtenCall& call, const std::function<void()>& forget_error);

// The same where PyTorch has no kernel for such types; asked only of calls with few
// elements.
void check_implemented(const AtenCall& call, const std::function<void()>& forget_error);

}  // namespace tessera
