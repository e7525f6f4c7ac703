// Graphs have 32 bits where PyTorch has 64: values are brought over, and one that does not fit is
// an Error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tessera/base/shape.h"

namespace tessera {

// Its type as graphs have it.
TensorType graph_type_of(const at::Tensor& tensor);

// `what` names whose value it is: "input 'labels'".
void check_fits(int64_t value, const std::string& what);

// For a loop over many values: not zero where one does not fit.
constexpr uint64_t beyond_int32(int64_t value) {
  return (static_cast<uint64_t>(value) + (uint64_t{1} << 31)) >> 32;
}

// The same values, dense, in the type that graphs have for them.
at::Tensor narrowed_values(const at::Tensor& tensor, const std::string& what);

}  // namespace tessera
