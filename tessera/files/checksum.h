// XXH3 with 64 bits. Fast, the same everywhere, and no proof against somebody who wants two texts
// with the same sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t checksum(std::string_view text, uint64_t seed = 0);

}  // namespace tessera
