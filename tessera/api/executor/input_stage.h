// Brings a tensor of the user into the form a program reads: dense, on the host, no 64-bit types.
// What has that form already is read where it lies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace tessera {

// Says, once in a process for each type, that float64 values lose precision and that bfloat16 ones
// are computed with in float32. Integers lose none: one that does not fit is an Error. `what` is an
// input or a weight: input 'x'.
void warn_of_other_type(const std::string& what, at::ScalarType type);

// What the user of a program was told about its inputs already.
struct InputWarnings {
  bool contiguous = false, detached = false;
};

// For one input of a program; it keeps the memory of its conversions from call to call.
class InputStage {
 public:
  // Valid until the next read, while the tensor is.
  const std::byte* read(const at::Tensor& tensor, const std::string& name, InputWarnings& told);

 private:
  template <typename From, typename To>
  const std::byte* convert(const at::Tensor& tensor);

  at::Tensor converted_;  // memory of our own, used again
  at::Tensor kept_;       // what PyTorch made of the last tensor; perhaps a view of it
};

}  // namespace tessera
