#include "tessera/base/rng.h"

#include "tessera/base/random_stream.h"

namespace tessera {
namespace {

uint64_t mixed(uint64_t x) {  // splitmix64's finaliser: spreads neighbouring keys apart
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t random_stream(const RngState& state, uint64_t key) {
  const uint64_t stream = mixed(state.seed ^ mixed(key));
  return state.replica == 0 ? stream : mixed(stream ^ mixed(state.replica));
}

std::array<uint32_t, 4> random_words(const RngState& state, uint64_t key, uint64_t counter) {
  const uint64_t stream = random_stream(state, key);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(state.step),
                               static_cast<uint32_t>(state.step >> 32)};
  uint32_t k0 = static_cast<uint32_t>(stream);
  uint32_t k1 = static_cast<uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

}  // namespace tessera
