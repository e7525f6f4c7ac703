// Tensors by their names as the bytes of a file that Python's torch.load() reads as a dictionary.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "tessera/torch/recorder.h"

namespace tessera {

std::vector<char> saved_tensors(const std::vector<NamedTensor>& tensors);

// Throws whatever PyTorch throws where the bytes are no such file.
std::map<std::string, at::Tensor> loaded_tensors(const std::vector<char>& bytes);

}  // namespace tessera
