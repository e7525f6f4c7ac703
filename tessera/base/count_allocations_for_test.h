// Definitions of malloc and its like that count; see allocations_for_test.h. Exactly one file of a
// program includes it. They take the place of the C library's for everything in the program, also
// for operator new and for libraries.
#pragma once

#include "tessera/base/allocations_for_test.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define TESSERA_COUNTS_ALLOCATIONS

#include <cerrno>
#include <cstddef>

extern "C" {

// The C library's own, under its other names.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

}  // extern "C"

namespace tessera::detail {

inline void count_allocation(size_t bytes) {
  AllocationCount& count = inside_library ? library_allocations : our_allocations;
  ++count.blocks;
  count.bytes += static_cast<int64_t>(bytes);
}

}  // namespace tessera::detail

extern "C" {

void* malloc(size_t bytes) {
  tessera::detail::count_allocation(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  tessera::detail::count_allocation(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  tessera::detail::count_allocation(bytes);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  tessera::detail::count_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  tessera::detail::count_allocation(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

}  // extern "C"

#endif
