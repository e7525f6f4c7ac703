// Tensors without memory, for values that are only known when the program runs. They look like CPU
// tensors to PyTorch. Reading one fails inside PyTorch; once capture is over, those that user code
// still holds get lazily mapped zero pages, so that nothing can crash later.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tessera/base/geometry.h"

namespace tessera {

class FakeStorages {
 public:
  // A tensor of that geometry over new storage without memory.
  at::Tensor make(const Geometry& geometry, at::ScalarType type);

  // Gives memory to every storage that somebody besides us still holds. Call once, at the end.
  void seal();

 private:
  std::vector<c10::Storage> storages_;
};

// A plain CPU tensor of that geometry over existing storage. Made without the dispatcher, so that
// nothing of it is recorded.
at::Tensor window_over(const c10::Storage& storage, at::ScalarType type, const Geometry& geometry);

// A tensor with no memory and no values on PyTorch's meta device, with the same geometry, type and
// wrapped-number flag: what shape rules of PyTorch itself are asked with.
at::Tensor to_meta(const at::Tensor& tensor);

}  // namespace tessera
