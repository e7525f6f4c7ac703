#include "tessera/base/scratch.h"

#include <algorithm>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/shape.h"

namespace tessera {
namespace {

constexpr size_t alignment = 64;
constexpr size_t first_chunk = size_t{64} << 10;

// Before every block: where it lies among the others of its chunk.
struct alignas(alignment) Header {
  size_t chunk;
  Header* before;  // in the same chunk
  bool in_use;
};

struct AlignedDelete {
  void operator()(std::byte* memory) const {
    ::operator delete(memory, std::align_val_t(alignment));
  }
};

// A stack of blocks in a few chunks of memory. Blocks are mostly given back in reverse order; one
// that is not stays until those above it are gone.
class Stack {
 public:
  void* take(size_t bytes) {
    const size_t needed = sizeof(Header) + (bytes + alignment - 1) / alignment * alignment;
    while (current_ < chunks_.size() && chunks_[current_].size - chunks_[current_].used < needed) {
      ++current_;
    }
    if (current_ == chunks_.size()) add_chunk(needed);
    Chunk& chunk = chunks_[current_];
    auto* header = new (chunk.memory.get() + chunk.used) Header{current_, chunk.last, true};
    chunk.last = header;
    chunk.used += needed;
    ++blocks_;
    return header + 1;
  }

  void give_back(void* memory) {
    Header* header = static_cast<Header*>(memory) - 1;
    header->in_use = false;
    Chunk& chunk = chunks_[header->chunk];
    while (chunk.last && !chunk.last->in_use) {
      chunk.used =
          static_cast<size_t>(reinterpret_cast<std::byte*>(chunk.last) - chunk.memory.get());
      chunk.last = chunk.last->before;
    }
    current_ = std::min(current_, header->chunk);
    if (--blocks_ == 0) current_ = 0;
  }

 private:
  struct Chunk {
    std::unique_ptr<std::byte, AlignedDelete> memory;
    size_t size = 0, used = 0;
    Header* last = nullptr;
  };

  void add_chunk(size_t needed) {
    const size_t twice = chunks_.empty() ? first_chunk : 2 * chunks_.back().size;
    Chunk chunk;
    chunk.size = std::max(needed, twice);
    chunk.memory.reset(
        static_cast<std::byte*>(::operator new(chunk.size, std::align_val_t(alignment))));
    chunks_.push_back(std::move(chunk));
  }

  std::vector<Chunk> chunks_;
  size_t current_ = 0;  // earlier ones have no room for what was asked last
  size_t blocks_ = 0;
};

Stack& stack_of_thread() {
  thread_local Stack stack;
  return stack;
}

}  // namespace

namespace detail {

void* take_scratch(size_t bytes) { return stack_of_thread().take(bytes); }
void give_back_scratch(void* memory) noexcept { stack_of_thread().give_back(memory); }

}  // namespace detail

ScratchShape scratch_strides(std::span<const int64_t> shape) {
  ScratchShape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

ScratchShape scratch_broadcast_strides(std::span<const int64_t> shape,
                                       std::span<const int64_t> strides,
                                       std::span<const int64_t> to) {
  ScratchShape out(to.size(), 0);
  const size_t lead = to.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) out[lead + i] = shape[i] == 1 ? 0 : strides[i];
  return out;
}

ScratchShape scratch_broadcast(std::span<const int64_t> a, std::span<const int64_t> b) {
  ScratchShape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t back = out.size() - i;
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    TESSERA_INVARIANT(x == y || x == 1 || y == 1, "{} and {} were not checked", to_string(a),
                      to_string(b));
    out[i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace tessera
