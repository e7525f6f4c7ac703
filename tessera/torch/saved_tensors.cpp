#include "tessera/torch/saved_tensors.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>

namespace tessera {

// As torch.save() writes a dictionary. PyTorch's own pickle_save() adds the marks of types that
// TorchScript has, which torch.load() of today takes for code and refuses.
std::vector<char> saved_tensors(const std::vector<NamedTensor>& tensors) {
  c10::Dict<std::string, at::Tensor> dense;
  for (const auto& [name, tensor] : tensors) {
    dense.insert(name, tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
  std::vector<char> pickle, file;
  torch::jit::Pickler pickler(
      [&](const char* bytes, size_t count) { pickle.insert(pickle.end(), bytes, bytes + count); },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dense);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t count) {
    const auto* begin = static_cast<const char*>(bytes);
    file.insert(file.end(), begin, begin + count);
    return count;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  size_t place = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    writer.writeRecord("data/" + std::to_string(place++), tensor.data_ptr(), tensor.nbytes());
  }
  writer.writeEndOfFile();
  return file;
}

std::map<std::string, at::Tensor> loaded_tensors(const std::vector<char>& bytes) {
  std::map<std::string, at::Tensor> tensors;
  const c10::IValue value = torch::jit::pickle_load(bytes);
  for (const auto& entry : value.toGenericDict()) {
    tensors.emplace(entry.key().toStringRef(), entry.value().toTensor());
  }
  return tensors;
}

}  // namespace tessera
