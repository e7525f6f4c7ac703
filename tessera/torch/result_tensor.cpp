#include "tessera/torch/result_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include "tessera/torch/compat.h"

namespace tessera {
namespace {

// Its address is the mark.
void free_result(void* memory) { c10::GetDefaultCPUAllocator()->raw_deallocate(memory); }

class ResultAllocator final : public compat::CpuAllocator {
 public:
  c10::DataPtr take(size_t bytes) const override {
    void* memory = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    return {memory, memory, &free_result, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_result; }
};

}  // namespace

at::Tensor empty_result(at::IntArrayRef shape, at::ScalarType type) {
  static ResultAllocator allocator;
  constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  return at::detail::empty_generic(shape, &allocator, cpu, type, compat::nullopt);
}

bool is_result(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == &free_result;
}

}  // namespace tessera
