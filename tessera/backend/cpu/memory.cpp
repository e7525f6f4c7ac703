#include "tessera/backend/cpu/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t cache_line = 64;

}  // namespace

Memory::Memory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = static_cast<size_t>(bytes) >= huge_page ? huge_page : cache_line;
  const size_t size = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
  check(data_, ErrorKind::runtime,
        "The model needs {} MB of memory in one piece, which this machine does not have; a smaller "
        "batch needs less.",
        bytes >> 20);
  // Only a wish: without huge pages everything still works.
  if (alignment == huge_page) madvise(data_, size, MADV_HUGEPAGE);
  std::memset(data_, 0, size);
}

Memory::~Memory() { std::free(data_); }

}  // namespace tessera::cpu
