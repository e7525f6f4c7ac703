// SHA-256 of whatever is put into it: a name for content that no other content has. Numbers and
// texts go in with their length, so that two lists of them never look the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera {

class Digest {
 public:
  Digest& add_bytes(std::span<const std::byte> bytes);  // as they are
  Digest& add(std::string_view text);
  Digest& add(const char* text) { return add(std::string_view(text)); }
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) Digest& add(T number) {
    return add_bytes(std::as_bytes(std::span(&number, 1)));
  }

  // 64 hexadecimal digits. Nothing can be added afterwards.
  std::string hex();

 private:
  void take_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_ = {};
  size_t filled_ = 0;  // of the block
  uint64_t bytes_ = 0;
};

}  // namespace tessera
