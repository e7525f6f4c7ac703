// Memory for the length of a kernel's call, taken from what the calling thread keeps for this
// purpose: after the first calls, which let it grow, nothing is allocated. Vectors of it are made
// and destroyed by one thread, and none outlives the call that made it; other threads may use them
// in between.
//
// Prepared kernels know beforehand what they need and have it planned in the arena: this is for the
// reference kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

namespace detail {

void* take_scratch(size_t bytes);
void give_back_scratch(void* memory) noexcept;

}  // namespace detail

template <typename T>
struct ScratchAllocator {
  using value_type = T;

  ScratchAllocator() = default;
  template <typename U>
  ScratchAllocator(const ScratchAllocator<U>&) {}  // NOLINT: as the standard wants it

  T* allocate(size_t count) { return static_cast<T*>(detail::take_scratch(count * sizeof(T))); }
  void deallocate(T* memory, size_t) noexcept { detail::give_back_scratch(memory); }
  bool operator==(const ScratchAllocator&) const { return true; }
};

template <typename T>
using ScratchVector = std::vector<T, ScratchAllocator<T>>;

// Sizes or strides.
using ScratchShape = ScratchVector<int64_t>;

// As contiguous_strides(), broadcast_strides() and broadcast().
ScratchShape scratch_strides(std::span<const int64_t> shape);
ScratchShape scratch_broadcast_strides(std::span<const int64_t> shape,
                                       std::span<const int64_t> strides,
                                       std::span<const int64_t> to);
ScratchShape scratch_broadcast(std::span<const int64_t> a, std::span<const int64_t> b);

inline ScratchShape scratch_copy(std::span<const int64_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace tessera
