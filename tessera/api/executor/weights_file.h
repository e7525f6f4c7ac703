// Weights in a file that Python's torch.load() reads as a state_dict, and back.
#pragma once

#include <filesystem>
#include <vector>

#include "tessera/torch/recorder.h"

namespace tessera {

// Written beside the target first and then renamed: no half-written file is left behind.
void save_weights(const std::vector<NamedTensor>& weights, const std::filesystem::path& path);

// Copies the file's tensors into those of the same name. Error, and nothing changed, where the file
// is damaged, a name is missing or unknown, or a shape differs.
void load_weights(const std::vector<NamedTensor>& weights, const std::filesystem::path& path);

// Parameters and buffers of a LibTorch module.
template <typename Module>
std::vector<NamedTensor> weights_of(const Module& module) {
  std::vector<NamedTensor> weights;
  for (const auto& item : module->named_parameters()) weights.push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) weights.push_back({item.key(), item.value()});
  return weights;
}

}  // namespace tessera
