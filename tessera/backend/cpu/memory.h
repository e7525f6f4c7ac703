// One zeroed, touched, aligned piece of memory. Large ones ask for huge pages: fresh small pages
// cost more than most kernels that would first touch them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tessera::cpu {

int64_t physical_memory();  // of this machine, in bytes

class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tessera::cpu
