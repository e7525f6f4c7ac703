#include "tessera/files/checksum.h"

#define XXH_INLINE_ALL  // nothing to link, on any processor
#include <xxhash.h>

namespace tessera {

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t checksum(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace tessera
