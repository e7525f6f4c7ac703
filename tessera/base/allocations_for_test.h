// How much memory a test program has allocated so far, on all threads. Counted where one file of
// the program includes count_allocations_for_test.h; always zero where none does, as under the
// sanitizers, which have a malloc of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera {

struct AllocationCount {
  std::atomic<int64_t> blocks{0}, bytes{0};
};

inline AllocationCount our_allocations;
// Those inside a library whose allocations are its own affair.
inline AllocationCount library_allocations;
inline thread_local bool inside_library = false;

// Blocks allocated by us since it was made.
class AllocationsSince {
 public:
  int64_t blocks() const { return our_allocations.blocks - blocks_; }
  int64_t bytes() const { return our_allocations.bytes - bytes_; }

 private:
  int64_t blocks_ = our_allocations.blocks, bytes_ = our_allocations.bytes;
};

}  // namespace tessera
