#include "tessera/backend/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"

namespace tessera::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t page = 4096;
constexpr size_t cache_line = 64;
// From here on the pages are touched by several threads: the kernel clears each at its first touch.
constexpr size_t worth_threads = size_t{64} << 20;

bool is_large(int64_t bytes) { return static_cast<size_t>(bytes) >= huge_page; }

size_t rounded(int64_t bytes, size_t unit) {
  return (static_cast<size_t>(bytes) + unit - 1) / unit * unit;
}

void check_found(bool found, int64_t bytes) {
  check(found, ErrorKind::runtime,
        "The model needs {} MB of memory in one piece, which this machine does not have; a smaller "
        "batch needs less.",
        bytes >> 20);
}

void touch(std::byte* begin, std::byte* end) {
  for (std::byte* at = begin; at < end; at += page) *const_cast<volatile std::byte*>(at) = {};
}

void touch_all(std::byte* data, size_t size) {
  const size_t threads = size < worth_threads ? 1 : static_cast<size_t>(std::min(8, usable_cpus()));
  const size_t part = rounded(static_cast<int64_t>(size / threads), huge_page);
  std::vector<std::thread> helpers;
  for (size_t begin = part; begin < size; begin += part) {
    helpers.emplace_back(touch, data + begin, data + std::min(size, begin + part));
  }
  touch(data, data + std::min(size, part));
  for (std::thread& helper : helpers) helper.join();
}

// Fresh from the kernel, so all zero, and on huge pages where there are some.
std::byte* map_pages(size_t size) {
  const size_t room = size + huge_page;  // to begin at a huge page
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t before = (huge_page - reinterpret_cast<size_t>(begin) % huge_page) % huge_page;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + size, room - before - size);
  // Only a wish: without huge pages everything still works.
  madvise(begin + before, size, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

int64_t physical_memory() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

Memory::Memory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // The kernel promises more than there is, and ends a process that touches it.
  check_found(bytes <= physical_memory(), bytes);
  if (is_large(bytes)) {
    const size_t size = rounded(bytes, huge_page);
    data_ = map_pages(size);
    check_found(data_, bytes);
    touch_all(data_, size);
    return;
  }
  const size_t size = rounded(bytes, cache_line);
  data_ = static_cast<std::byte*>(std::aligned_alloc(cache_line, size));
  check_found(data_, bytes);
  std::memset(data_, 0, size);
}

Memory::~Memory() {
  if (!data_) return;
  if (is_large(bytes_)) {
    munmap(data_, rounded(bytes_, huge_page));
  } else {
    std::free(data_);
  }
}

}  // namespace tessera::cpu
