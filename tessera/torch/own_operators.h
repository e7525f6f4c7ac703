// Operators of our own for PyTorch's dispatcher, in the namespace `poptorch`: what a network's
// layer computes where PyTorch would take it apart. Each is spelled by a row of the operator table;
// outside a capture it runs that row's reference kernel.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tessera {

// The results of poptorch::<name>, all of them tensors.
std::vector<at::Tensor> call_own(const std::string& name, std::vector<c10::IValue> arguments);

// For gradients that are computed by operators of our own, which have none themselves: where a
// graph of the gradients is asked for, differentiating them is an error that names `what`.
std::vector<at::Tensor> differentiable_once(std::vector<at::Tensor> gradients,
                                            const std::string& what);

}  // namespace tessera
