#include "tessera/torch/fake_storage.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

namespace tessera {
namespace {

void unmap_nothing(void*) {}

at::Tensor tensor_over(c10::Storage storage, at::ScalarType type, const Geometry& geometry,
                       c10::DispatchKey key) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.shape, geometry.strides,
                                                      geometry.offset);
  return tensor;
}

c10::Storage storage_without_memory(size_t byte_count, c10::Device device) {
  return c10::Storage(c10::Storage::use_byte_size_t(), byte_count,
                      c10::DataPtr(nullptr, nullptr, &unmap_nothing, device), nullptr,
                      /*resizable=*/false);
}

struct Mapping {
  void* address;
  size_t byte_count;
};

void unmap(void* context) {
  auto* mapping = static_cast<Mapping*>(context);
  munmap(mapping->address, mapping->byte_count);
  delete mapping;
}

}  // namespace

at::Tensor FakeStorages::make(const Geometry& geometry, at::ScalarType type) {
  const size_t byte_count =
      static_cast<size_t>(extent(geometry)) * static_cast<size_t>(c10::elementSize(type));
  c10::Storage storage = storage_without_memory(byte_count, at::kCPU);
  storages_.push_back(storage);
  return tensor_over(std::move(storage), type, geometry, c10::DispatchKey::CPU);
}

void FakeStorages::seal() {
  for (c10::Storage& storage : storages_) {
    if (storage.use_count() <= 1 || storage.data() != nullptr || storage.nbytes() == 0) continue;
    void* address = mmap(nullptr, storage.nbytes(), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) continue;  // left without memory: PyTorch still refuses most reads
    auto* mapping = new Mapping{address, storage.nbytes()};
    storage.set_data_ptr_noswap(c10::DataPtr(address, mapping, &unmap, at::kCPU));
  }
  storages_.clear();
}

at::Tensor window_over(const c10::Storage& storage, at::ScalarType type, const Geometry& geometry) {
  return tensor_over(storage, type, geometry, c10::DispatchKey::CPU);
}

at::Tensor to_meta(const at::Tensor& tensor) {
  at::Tensor meta = tensor_over(
      storage_without_memory(tensor.storage().nbytes(), at::kMeta), tensor.scalar_type(),
      {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()},
      c10::DispatchKey::Meta);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

}  // namespace tessera
