// Random masks: eight counters of the generator at once. The words are those of base/rng, bit for
// bit, whatever the layout: where eight channels lie side by side, each has a counter.
#include <algorithm>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"
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

// Eight counters, `stride` apart.
struct Counters {
  __m256i first, last;  // 64 bits each
};

TESSERA_AVX2 inline Counters counters_from(int64_t first, int64_t stride) {
  const __m256i begin = _mm256_set1_epi64x(first);
  return {
      _mm256_add_epi64(begin, _mm256_setr_epi64x(0, stride, 2 * stride, 3 * stride)),
      _mm256_add_epi64(begin, _mm256_setr_epi64x(4 * stride, 5 * stride, 6 * stride, 7 * stride))};
}

// The lower or the upper halves of all counters, in their order.
template <int upper>
TESSERA_AVX2 inline __m256i halves(const Counters& c) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(c.first), _mm256_castsi256_ps(c.last),
                                         upper ? 0xDD : 0x88);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xD8);
}

// As random_words() does it.
TESSERA_AVX2 inline Words words_of(uint64_t stream, uint64_t step, const Counters& counters) {
  const auto all = [](uint64_t word) { return static_cast<int>(static_cast<uint32_t>(word)); };
  Words c{{halves<0>(counters), halves<1>(counters), _mm256_set1_epi32(all(step)),
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

// 1 where the word as a number in [0, 1) is below p, else 0.
TESSERA_AVX2 inline __m256 below(__m256i words, float p) {
  const __m256 uniform =
      _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(words, 8)), _mm256_set1_ps(0x1.0p-24F));
  return _mm256_and_ps(_mm256_cmp_ps(uniform, _mm256_set1_ps(p), _CMP_LT_OQ), _mm256_set1_ps(1));
}

// Elements from `begin`, which is a multiple of the block.
TESSERA_AVX2 void draw(uint64_t stream, uint64_t step, float p, int64_t begin, int64_t end,
                       float* out) {
  for (int64_t at = begin; at < end; at += block) {
    const Words words = in_order(words_of(stream, step, counters_from(at / words_of_counter, 1)));
    for (int64_t k = 0; k < words_of_counter; ++k) {
      const int64_t left = end - at - k * lanes;
      if (left <= 0) break;
      float* to = out + at + k * lanes;
      if (left >= lanes) {
        _mm256_storeu_ps(to, below(words.v[k], p));
      } else {
        _mm256_maskstore_ps(to, mask_of(left), below(words.v[k], p));
      }
    }
  }
}

// Blocks of four places of eight channels; `steps` of them make a plane.
TESSERA_AVX2 void draw_grouped(uint64_t stream, uint64_t step, float p, int64_t steps,
                               int64_t begin, int64_t end, float* out) {
  for (int64_t at = begin; at < end; ++at) {
    const int64_t first = at / steps * lanes * steps + at % steps;
    const Words words = words_of(stream, step, counters_from(first, steps));
    for (int64_t k = 0; k < words_of_counter; ++k) {
      _mm256_storeu_ps(out + at * block + k * lanes, below(words.v[k], p));
    }
  }
}

// bernoulli(self): only the shape of `self` matters.
class Bernoulli : public PreparedKernel {
 public:
  // `steps`: of four places in a plane of grouped channels; 0 where the result is plain.
  Bernoulli(float p, uint64_t key, int64_t steps) : p_(p), key_(key), steps_(steps) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    const uint64_t stream = random_stream(call.rng, key_);
    auto* out = call.outputs[0].as<float>();
    if (steps_ > 0) {
      const int64_t blocks = call.outputs[0].numel() / block;
      call.pool.run_ranges(blocks, piece_elements / block, [&](int64_t begin, int64_t end) {
        draw_grouped(stream, call.rng.step, p_, steps_, begin, end, out);
      });
      return;
    }
    call.pool.run_ranges(call.outputs[0].numel(), piece_elements, [&](int64_t begin, int64_t end) {
      draw(stream, call.rng.step, p_, begin, end, out);
    });
  }

 private:
  float p_;
  uint64_t key_;
  int64_t steps_;
};

// Four neighbouring places share a counter where a plane holds a multiple of four.
int64_t steps_of(const KernelOperand& out) {
  const Shape& shape = out.geometry.shape;
  if (out.layout != channels_layout || numel(shape) == 0) return 0;
  const int64_t places = numel(shape) / (shape[0] * shape[1] * lanes);
  return places % words_of_counter == 0 ? places / words_of_counter : 0;
}

bool applies(const KernelUse& use) {
  const KernelOperand& out = use.outputs[0];
  return out.dtype == DType::f32 && (out.layout.plain() || steps_of(out) > 0);
}

std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<Bernoulli>(static_cast<float>(use.attrs.number("p")),
                                     static_cast<uint64_t>(use.attrs.integer("key")),
                                     steps_of(use.outputs[0]));
}

}  // namespace

std::span<const KernelEntry> random_entries() {
  static constexpr KernelEntry entries[] = {
      {"bernoulli", "avx2_bernoulli", applies, prepare, nullptr, true},
  };
  return entries;
}

}  // namespace tessera::cpu
