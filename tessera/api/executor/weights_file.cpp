#include "tessera/api/executor/weights_file.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/replace_file.h"
#include "tessera/torch/convert.h"
#include "tessera/torch/saved_tensors.h"

namespace tessera {
namespace {

void write_file(const std::vector<char>& bytes, const std::filesystem::path& path) {
  const bool written = replace_file(path, {bytes.data(), bytes.size()});
  check(written, ErrorKind::runtime,
        "the weights could not be written to '{}': {}; does the folder exist, and is there space?",
        path.string(), std::strerror(errno));
}

std::map<std::string, at::Tensor> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ErrorKind::runtime, "the weights file '{}' cannot be opened", path.string());
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  try {
    return loaded_tensors(bytes);
  } catch (const std::exception& error) {
    fail(ErrorKind::runtime, "'{}' is no file of weights, or it is damaged", path.string());
  }
}

}  // namespace

void save_weights(const std::vector<NamedTensor>& weights, const std::filesystem::path& path) {
  write_file(saved_tensors(weights), path);
}

void load_weights(const std::vector<NamedTensor>& weights, const std::filesystem::path& path) {
  const auto tensors = read_file(path);
  for (const auto& [name, tensor] : weights) {
    const auto at = tensors.find(name);
    check(at != tensors.end(), ErrorKind::runtime, "the weights file '{}' has no '{}'",
          path.string(), name);
    check(at->second.sizes() == tensor.sizes(), ErrorKind::runtime,
          "'{}' has shape {} in the weights file '{}', the model's has {}", name,
          to_string(shape_of(at->second)), path.string(), to_string(shape_of(tensor)));
  }
  check(tensors.size() == weights.size(), ErrorKind::runtime,
        "the weights file '{}' has {} tensors, the model has {}", path.string(), tensors.size(),
        weights.size());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : weights) at::Tensor(tensor).copy_(tensors.at(name));
}

}  // namespace tessera
