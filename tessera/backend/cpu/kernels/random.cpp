// Random masks: eight counters of the generator at once. The words are those of base/rng, bit for
// bit.
#include <algorithm>

#include "tessera/backend/cpu/kernels/avx2.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/cpu_level.h"
#include "tessera/base/random_stream.h"

namespace tessera::cpu {
namespace {

using namespace avx2;

constexpr int64_t words_of_counter = 4;
constexpr int64_t block = lanes * words_of_counter;  // elements made at once
constexpr int64_t piece_elements = 512 * block;

// Four words for each of eight counters.
struct Words {
  __m256i v[4];
};

// a * b in halves, lane by lane.
TESSERA_AVX2 inline void multiply(__m256i a, uint32_t b, __m256i& low, __m256i& high) {
  const __m256i factor = _mm256_set1_epi32(static_cast<int>(b));
  const __m256i even = _mm256_mul_epu32(a, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

// As random_words() does it.
TESSERA_AVX2 inline Words words_of(uint64_t stream, uint64_t step, const uint64_t (&counters)[8]) {
  alignas(32) uint32_t low[8], high[8];
  for (int i = 0; i < 8; ++i) {
    low[i] = static_cast<uint32_t>(counters[i]);
    high[i] = static_cast<uint32_t>(counters[i] >> 32);
  }
  const auto all = [](uint64_t word) { return static_cast<int>(static_cast<uint32_t>(word)); };
  Words c{{_mm256_load_si256(reinterpret_cast<const __m256i*>(low)),
           _mm256_load_si256(reinterpret_cast<const __m256i*>(high)), _mm256_set1_epi32(all(step)),
           _mm256_set1_epi32(all(step >> 32))}};
  __m256i k0 = _mm256_set1_epi32(all(stream)), k1 = _mm256_set1_epi32(all(stream >> 32));
  for (int round = 0; round < 10; ++round) {
    __m256i low0, high0, low1, high1;
    multiply(c.v[0], 0xD2511F53, low0, high0);
    multiply(c.v[2], 0xCD9E8D57, low1, high1);
    c = {{_mm256_xor_si256(_mm256_xor_si256(high1, c.v[1]), k0), low1,
          _mm256_xor_si256(_mm256_xor_si256(high0, c.v[3]), k1), low0}};
    k0 = _mm256_add_epi32(k0, _mm256_set1_epi32(all(0x9E3779B9)));
    k1 = _mm256_add_epi32(k1, _mm256_set1_epi32(all(0xBB67AE85)));
  }
  return c;
}

// Counter by counter: the words of the first, of the second and so on.
TESSERA_AVX2 inline Words in_order(const Words& c) {
  const __m256i a = _mm256_unpacklo_epi32(c.v[0], c.v[1]);
  const __m256i b = _mm256_unpackhi_epi32(c.v[0], c.v[1]);
  const __m256i d = _mm256_unpacklo_epi32(c.v[2], c.v[3]);
  const __m256i e = _mm256_unpackhi_epi32(c.v[2], c.v[3]);
  // Counters 0 and 4, 1 and 5, 2 and 6, 3 and 7.
  const __m256i first = _mm256_unpacklo_epi64(a, d), second = _mm256_unpackhi_epi64(a, d);
  const __m256i third = _mm256_unpacklo_epi64(b, e), fourth = _mm256_unpackhi_epi64(b, e);
  return {{_mm256_permute2x128_si256(first, second, 0x20),
           _mm256_permute2x128_si256(third, fourth, 0x20),
           _mm256_permute2x128_si256(first, second, 0x31),
           _mm256_permute2x128_si256(third, fourth, 0x31)}};
}

// 1 where the word as a number in [0, 1) is below p, else 0. Elements from `begin`, which is a
// multiple of the block.
TESSERA_AVX2 void draw(uint64_t stream, uint64_t step, float p, int64_t begin, int64_t end,
                       float* out) {
  const __m256 limit = _mm256_set1_ps(p), one = _mm256_set1_ps(1);
  const __m256 scale = _mm256_set1_ps(0x1.0p-24F);
  for (int64_t at = begin; at < end; at += block) {
    uint64_t counters[8];
    for (uint64_t i = 0; i < 8; ++i) {
      counters[i] = static_cast<uint64_t>(at / words_of_counter) + i;
    }
    const Words words = in_order(words_of(stream, step, counters));
    for (int64_t k = 0; k < words_of_counter; ++k) {
      const __m256 uniform =
          _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(words.v[k], 8)), scale);
      const __m256 mask = _mm256_and_ps(_mm256_cmp_ps(uniform, limit, _CMP_LT_OQ), one);
      const int64_t left = end - at - k * lanes;
      if (left <= 0) break;
      _mm256_maskstore_ps(out + at + k * lanes, mask_of(left), mask);
    }
  }
}

// bernoulli(self): only the shape of `self` matters.
class Bernoulli : public PreparedKernel {
 public:
  Bernoulli(float p, uint64_t key) : p_(p), key_(key) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const uint64_t stream = random_stream(call.rng.seed, key_);
    auto* out = call.outputs[0].as<float>();
    call.pool.run_ranges(call.outputs[0].numel(), piece_elements, [&](int64_t begin, int64_t end) {
      draw(stream, call.rng.step, p_, begin, end, out);
    });
  }

 private:
  float p_;
  uint64_t key_;
};

bool applies(const KernelUse& use) {
  return has_avx2() && use.outputs[0].dtype == DType::f32 && use.outputs[0].layout.plain();
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<Bernoulli>(static_cast<float>(use.attrs.number("p")),
                                     static_cast<uint64_t>(use.attrs.integer("key")));
}

}  // namespace

std::span<const KernelEntry> random_entries() {
  static constexpr KernelEntry entries[] = {
      {"bernoulli", "avx2_bernoulli", applies, prepare},
  };
  return entries;
}

}  // namespace tessera::cpu
