#include "tessera/api/executor/synthetic_inputs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tessera/torch/convert.h"

namespace tessera {

at::Tensor synthetic_values(const TensorType& type) {
  const at::ScalarType scalar_type = scalar_type_of(type.dtype);
  if (!is_floating(type.dtype)) return at::zeros(type.shape, scalar_type);
  constexpr uint64_t seed = 1;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(type.shape, generator, at::kFloat).to(scalar_type);
}

}  // namespace tessera
