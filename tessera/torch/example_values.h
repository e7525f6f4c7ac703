// What a value of a program is for the batch that the model is compiled with. Only sizes may follow
// from it, and only where the program checks them when it runs: other batches have other values.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

// `examples` are the graph's inputs in order. Nothing where the value also depends on weights or on
// random numbers.
std::optional<at::Tensor> example_value(const Graph& graph, ValueId value,
                                        const std::vector<at::Tensor>& examples);

}  // namespace tessera
