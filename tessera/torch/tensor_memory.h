// Which memory a tensor's elements lie in: what PyTorch's storages tell.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera {

// False for a tensor whose storage was made smaller than the tensor says it is.
bool has_memory(const at::Tensor& tensor);

// True where the elements of one lie, or may lie, where those of the other do.
bool share_memory(const at::Tensor& a, const at::Tensor& b);

// True where both are the same elements of one storage. Both have storages.
bool same_window(const at::Tensor& a, const at::Tensor& b);

// The beginning of its storage; null for one without storage or memory.
const void* memory_of(const at::Tensor& tensor);

// How often the tensor was changed in place, as far as PyTorch counts: tensors made under
// torch.inference_mode() do not.
uint32_t change_count(const at::Tensor& tensor);

}  // namespace tessera
