// Cross entropy: log-softmax and negative log likelihood in one pass over the scores, and their
// gradient in another, of rows of classes (eight classes at a time) and of images of them (eight
// pixels at a time). Log probabilities are never stored. Losses are within 3e-6 of the reference's,
// gradients within 1e-6, relative to the largest.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/backend/cpu/kernels/after_copies.h"
#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/loss/labelled_classes.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using namespace avx2;
using namespace labelled_classes;

constexpr int64_t piece_elements = 8192;

// Targets that one piece works on: some rows, or neighbouring pixels of one image.
struct Range {
  int64_t first = 0, count = 0;
};

class Pieces {
 public:
  explicit Pieces(const Problem& p) : rows_(p.places == 1), targets_(p.targets()) {
    const int64_t fit = std::max<int64_t>(1, piece_elements / p.classes);
    grain_ = rows_ ? fit : rounded_up(fit, lanes);
    places_ = rows_ ? targets_ : p.places;
    per_image_ = divided_up(places_, grain_);
  }

  int64_t count() const { return targets_ / places_ * per_image_; }
  Range operator[](int64_t piece) const {
    const int64_t begin = piece % per_image_ * grain_;
    return {piece / per_image_ * places_ + begin, std::min(grain_, places_ - begin)};
  }

 private:
  bool rows_;
  int64_t targets_, places_ = 1, grain_ = 1, per_image_ = 1;
};

// exp(x - largest) of a row adds up to a number that has the logarithm log_sum.
struct RowSum {
  float largest, log_sum;
};

// A NaN may be lost here; the sum finds it again.
TESSERA_AVX2 float largest_of_row(const float* x, int64_t size) {
  const int64_t whole = size / lanes * lanes;
  __m256 best = whole < size ? load_or_lowest(x + whole, mask_of(size - whole)) : lowest();
  for (int64_t i = 0; i < whole; i += lanes) best = _mm256_max_ps(best, _mm256_loadu_ps(x + i));
  return largest_of_lanes(best);
}

TESSERA_AVX2 RowSum sum_row(const float* x, int64_t size) {
  const int64_t whole = size / lanes * lanes;
  const float largest = largest_of_row(x, size);
  const __m256 shift = _mm256_set1_ps(largest);
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < whole; i += lanes) {
    sums = _mm256_add_ps(sums, exp_of(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift)));
  }
  if (whole < size) {
    const __m256i mask = mask_of(size - whole);
    const __m256 e = exp_of(_mm256_sub_ps(_mm256_maskload_ps(x + whole, mask), shift));
    sums = _mm256_add_ps(sums, _mm256_and_ps(e, _mm256_castsi256_ps(mask)));
  }
  return {largest, std::log(sum_of_lanes(sums))};
}

// What the scores must be lowered by before exp() makes probabilities of them, in two steps so that
// little is lost of large scores.
struct Shift {
  __m256 largest, log_sum;
};

template <bool whole>
TESSERA_AVX2 inline void store_grad(const float* x, const Shift& shift, __m256 is_label,
                                    __m256 share, __m256i mask, float* out) {
  const __m256 distance = _mm256_sub_ps(load<whole>(x, mask), shift.largest);
  const __m256 probability = exp_of_any(_mm256_sub_ps(distance, shift.log_sum));
  store<whole>(out, mask, _mm256_fnmadd_ps(probability, share, _mm256_and_ps(share, is_label)));
}

TESSERA_AVX2 inline __m256 equal(__m256i a, __m256i b) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
}

TESSERA_AVX2 void write_row_grad(const float* x, int64_t size, const RowSum& sum, int32_t label,
                                 float share, float* out) {
  const int64_t whole = size / lanes * lanes;
  const Shift shift{_mm256_set1_ps(sum.largest), _mm256_set1_ps(sum.log_sum)};
  const __m256i wanted = _mm256_set1_epi32(label), step = _mm256_set1_epi32(lanes);
  const __m256 shares = _mm256_set1_ps(share);
  __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int64_t i = 0; i < whole; i += lanes, at = _mm256_add_epi32(at, step)) {
    store_grad<true>(x + i, shift, equal(at, wanted), shares, __m256i{}, out + i);
  }
  if (whole == size) return;
  store_grad<false>(x + whole, shift, equal(at, wanted), shares, mask_of(size - whole),
                    out + whole);
}

// The labels of eight pixels. Those that are ignored or beyond the mask do not count.
struct Labels {
  __m256i label;
  __m256 counts;
};

template <bool whole>
TESSERA_AVX2 inline __m256i load_integers(const int32_t* x, __m256i mask) {
  return whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))
               : _mm256_maskload_epi32(x, mask);
}

template <bool whole>
TESSERA_AVX2 inline Labels load_labels(const Problem& p, const int32_t* labels, __m256i mask) {
  const __m256i label = load_integers<whole>(labels, mask);
  const __m256 ignored = equal(label, _mm256_set1_epi32(static_cast<int>(p.ignored)));
  // As numbers without a sign, those below 0 are too large as well.
  const __m256i last = _mm256_set1_epi32(static_cast<int>(p.classes - 1));
  const __m256 inside = equal(_mm256_min_epu32(label, last), label);
  const int good = _mm256_movemask_ps(_mm256_or_ps(inside, ignored));
  if (good != 0xFF) check_labels(p, labels, lanes);
  const __m256 counts = _mm256_andnot_ps(ignored, inside);
  return {label, whole ? counts : _mm256_and_ps(counts, _mm256_castsi256_ps(mask))};
}

// 0 where nothing counts.
TESSERA_AVX2 inline __m256 weights_of(const Labels& labels, const float* weights) {
  if (!weights) return _mm256_and_ps(labels.counts, _mm256_set1_ps(1));
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), weights, labels.label, labels.counts,
                                  sizeof(float));
}

template <bool whole>
TESSERA_AVX2 inline __m256 largest_of_columns(const Problem& p, const float* x, __m256i mask) {
  __m256 largest = lowest();
  for (int64_t c = 0; c < p.classes; ++c) {
    largest = _mm256_max_ps(largest, load<whole>(x + c * p.places, mask));
  }
  return largest;
}

// Sums of eight numbers each, as doubles.
struct Sums {
  __m256d loss = {}, weight = {};
};

TESSERA_AVX2 inline __m256d widened(__m256 v) {
  return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                       _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

// Pixels are worked on in two passes over a few of them: an exponential and a logarithm that wait
// for each other would leave the units idle.
constexpr int64_t block_pixels = 256;

struct Block {
  alignas(32) float sums[block_pixels];
  alignas(32) float picked[block_pixels];  // the label's score, from the largest on
};

// Eight pixels of the block.
template <bool whole>
TESSERA_AVX2 inline void sum_columns(const Problem& p, const float* x, const int32_t* labels,
                                     __m256i mask, float* sums, float* picked) {
  const __m256i label = load_integers<whole>(labels, mask);
  const __m256 largest = largest_of_columns<whole>(p, x, mask);
  __m256 sum = _mm256_setzero_ps(), at_label = _mm256_setzero_ps();
  for (int64_t c = 0; c < p.classes; ++c) {
    const __m256 distance = _mm256_sub_ps(load<whole>(x + c * p.places, mask), largest);
    sum = _mm256_add_ps(sum, exp_of(distance));
    const __m256 is_label = equal(label, _mm256_set1_epi32(static_cast<int>(c)));
    at_label = _mm256_blendv_ps(at_label, distance, is_label);
  }
  _mm256_store_ps(sums, sum);
  _mm256_store_ps(picked, at_label);
}

template <bool whole>
TESSERA_AVX2 inline void fold_columns(const Problem& p, const float* sums_at, const float* picked,
                                      const int32_t* labels_at, const float* weights, __m256i mask,
                                      float* log_sums, float* losses, Sums& sums) {
  const Labels labels = load_labels<whole>(p, labels_at, mask);
  const __m256 log_sum = log_of(_mm256_load_ps(sums_at));
  store<whole>(log_sums, mask, log_sum);
  const __m256 weight = weights_of(labels, weights);
  const __m256 distance = _mm256_sub_ps(log_sum, _mm256_load_ps(picked));
  const __m256 loss = _mm256_and_ps(_mm256_mul_ps(distance, weight), labels.counts);
  if (losses) store<whole>(losses, mask, loss);
  sums.loss = _mm256_add_pd(sums.loss, widened(loss));
  sums.weight = _mm256_add_pd(sums.weight, widened(weight));
}

TESSERA_AVX2 inline double sum_of_doubles(__m256d v) {
  const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

// cross_entropy(self, target, weight?) -> output, total_weight, log_sum
class CrossEntropy : public PreparedKernel {
 public:
  explicit CrossEntropy(const Problem& problem) : p_(problem), pieces_(problem) {}

  int64_t workspace_bytes() const override {
    return pieces_.count() * static_cast<int64_t>(sizeof(Losses));
  }

  void run(const KernelCall& call, std::span<std::byte> workspace) const override {
    auto* losses = reinterpret_cast<Losses*>(workspace.data());
    call.pool.run(pieces_.count(), [&](int64_t piece) {
      losses[piece] =
          p_.places == 1 ? fold_rows(call, pieces_[piece]) : fold_pixels(call, pieces_[piece]);
    });
    write_sums(p_, {losses, static_cast<size_t>(pieces_.count())}, call);
  }

 private:
  static const float* weights(const KernelCall& call) {
    return call.has_input(2) ? call.inputs[2].as<float>() : nullptr;
  }
  float* single_losses(const KernelCall& call) const {
    return p_.reduction == none ? call.outputs[0].as<float>() : nullptr;
  }

  Losses fold_rows(const KernelCall& call, const Range& range) const {
    const int32_t* labels = call.inputs[1].as<int32_t>();
    float* out = single_losses(call);
    Losses losses;
    for (int64_t i = range.first; i < range.first + range.count; ++i) {
      const float* x = call.inputs[0].as<float>() + i * p_.classes;
      const RowSum sum = sum_row(x, p_.classes);
      call.outputs[2].as<float>()[i] = sum.log_sum;
      const int32_t label = labels[i];
      float loss = 0;
      if (label != p_.ignored) {
        check_label(p_, label);
        const float weight = weights(call) ? weights(call)[label] : 1;
        loss = -(x[label] - sum.largest - sum.log_sum) * weight;
        losses.weight += double{weight};
      }
      losses.loss += double{loss};
      if (out) out[i] = loss;
    }
    return losses;
  }

  TESSERA_AVX2 Losses fold_pixels(const KernelCall& call, const Range& range) const {
    const int64_t image = range.first / p_.places;
    const float* x =
        call.inputs[0].as<float>() + range.first + image * (p_.classes - 1) * p_.places;
    const int32_t* labels = call.inputs[1].as<int32_t>() + range.first;
    float* log_sums = call.outputs[2].as<float>() + range.first;
    float* out = single_losses(call);
    if (out) out += range.first;
    Sums sums;
    for (int64_t i = 0; i < range.count; i += block_pixels) {
      fold_block(x + i, labels + i, weights(call), std::min(block_pixels, range.count - i),
                 log_sums + i, out ? out + i : nullptr, sums);
    }
    return {sum_of_doubles(sums.loss), sum_of_doubles(sums.weight)};
  }

  TESSERA_AVX2 void fold_block(const float* x, const int32_t* labels, const float* weights,
                               int64_t count, float* log_sums, float* out, Sums& sums) const {
    Block block;
    const int64_t whole = count / lanes * lanes;
    const __m256i mask = mask_of(count - whole);
    for (int64_t i = 0; i < whole; i += lanes) {
      sum_columns<true>(p_, x + i, labels + i, mask, block.sums + i, block.picked + i);
    }
    if (whole < count) {
      sum_columns<false>(p_, x + whole, labels + whole, mask, block.sums + whole,
                         block.picked + whole);
    }
    for (int64_t i = 0; i < whole; i += lanes) {
      fold_columns<true>(p_, block.sums + i, block.picked + i, labels + i, weights, mask,
                         log_sums + i, out ? out + i : nullptr, sums);
    }
    if (whole < count) {
      fold_columns<false>(p_, block.sums + whole, block.picked + whole, labels + whole, weights,
                          mask, log_sums + whole, out ? out + whole : nullptr, sums);
    }
  }

  Problem p_;
  Pieces pieces_;
};

// cross_entropy_backward(grad, self, target, weight?, total_weight, log_sum?)
class CrossEntropyGrad : public PreparedKernel {
 public:
  explicit CrossEntropyGrad(const Problem& problem) : p_(problem), pieces_(problem) {}

  void run(const KernelCall& call, std::span<std::byte>) const override {
    call.pool.run(pieces_.count(), [&](int64_t piece) {
      if (p_.places == 1) {
        rows(call, pieces_[piece]);
      } else {
        pixels(call, pieces_[piece]);
      }
    });
  }

 private:
  // Null: `self` are log probabilities.
  static const float* log_sums(const KernelCall& call) {
    return call.has_input(5) ? call.inputs[5].as<float>() : nullptr;
  }

  void rows(const KernelCall& call, const Range& range) const {
    const int32_t* labels = call.inputs[2].as<int32_t>() + range.first;
    check_labels(p_, labels, range.count);
    for (int64_t i = 0; i < range.count; ++i) {
      const int64_t target = range.first + i, at = target * p_.classes;
      const float* x = call.inputs[1].as<float>() + at;
      RowSum sum{0, 0};
      if (log_sums(call)) sum = {largest_of_row(x, p_.classes), log_sums(call)[target]};
      const float share = labels[i] == p_.ignored ? 0 : share_of(p_, call, target, labels[i]);
      write_row_grad(x, p_.classes, sum, labels[i], share, call.outputs[0].as<float>() + at);
    }
  }

  // Where the operands of a place lie; null for those that there are none of.
  struct Place {
    const float* x;
    const int32_t* labels;
    const float *log_sums, *grads, *weights;
    float* out;
  };

  TESSERA_AVX2 void pixels(const KernelCall& call, const Range& range) const {
    const int64_t image = range.first / p_.places;
    const int64_t at = range.first + image * (p_.classes - 1) * p_.places;
    const float* sums = log_sums(call);
    const Place first{call.inputs[1].as<float>() + at,
                      call.inputs[2].as<int32_t>() + range.first,
                      sums ? sums + range.first : nullptr,
                      call.inputs[0].as<float>() + (p_.reduction == none ? range.first : 0),
                      call.has_input(3) ? call.inputs[3].as<float>() : nullptr,
                      call.outputs[0].as<float>() + at};
    const float divisor = p_.reduction == mean ? *call.inputs[4].as<float>() : 1;
    int64_t i = 0;
    for (; i + lanes <= range.count; i += lanes) columns<true>(first, i, divisor, __m256i{});
    if (i < range.count) columns<false>(first, i, divisor, mask_of(range.count - i));
  }

  // Eight pixels.
  template <bool whole>
  TESSERA_AVX2 inline void columns(const Place& first, int64_t i, float divisor,
                                   __m256i mask) const {
    const Labels labels = load_labels<whole>(p_, first.labels + i, mask);
    const __m256 grads =
        p_.reduction == none ? load<whole>(first.grads + i, mask) : _mm256_set1_ps(*first.grads);
    const __m256 share = shares(labels, first.weights, grads, divisor);
    Shift shift{_mm256_setzero_ps(), _mm256_setzero_ps()};
    if (first.log_sums) {
      shift = {largest_of_columns<whole>(p_, first.x + i, mask),
               load<whole>(first.log_sums + i, mask)};
    }
    for (int64_t c = 0; c < p_.classes; ++c) {
      const __m256 is_label = equal(labels.label, _mm256_set1_epi32(static_cast<int>(c)));
      const int64_t at = i + c * p_.places;
      store_grad<whole>(first.x + at, shift, is_label, share, mask, first.out + at);
    }
  }

  // As share_of() says; 0 where nothing counts.
  TESSERA_AVX2 static inline __m256 shares(const Labels& labels, const float* weights, __m256 grads,
                                           float divisor) {
    const __m256 share = _mm256_mul_ps(weights_of(labels, weights), grads);
    const __m256 divided = _mm256_div_ps(share, _mm256_set1_ps(divisor));
    return _mm256_and_ps(_mm256_xor_ps(divided, _mm256_set1_ps(-0.0F)), labels.counts);
  }

  Problem p_;
  Pieces pieces_;
};

template <bool backward>
bool applies(const KernelUse& use) {
  constexpr size_t target = backward ? 2 : 1;
  const auto is_i32 = [](int64_t value) {
    return value >= std::numeric_limits<int32_t>::min() &&
           value <= std::numeric_limits<int32_t>::max();
  };
  for (size_t i = 0; i < use.inputs.size(); ++i) {
    if (!is_plain(use.inputs[i], i == target ? DType::i32 : DType::f32)) return false;
  }
  const auto is_result = [](const KernelOperand& x) { return is_plain(x, DType::f32); };
  return std::all_of(use.outputs.begin(), use.outputs.end(), is_result) &&
         is_i32(use.attrs.integer("ignore_index")) &&
         numel(use.inputs[backward ? 1 : 0].geometry.shape) > 0;
}

template <typename Kernel, size_t scores>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<Kernel>(problem_of(use, use.inputs[scores].geometry.shape));
}

}  // namespace

std::span<const KernelEntry> cross_entropy_entries() {
  static constexpr KernelEntry entries[] = {
      {"cross_entropy", "avx2_cross_entropy", applies<false>, prepare<CrossEntropy, 0>},
      {"cross_entropy_backward", "avx2_cross_entropy_backward", applies<true>,
       prepare<CrossEntropyGrad, 1>},
      {"cross_entropy", "copies_avx2_cross_entropy", applies_after_copies<applies<false>>,
       prepare_after_copies<prepare<CrossEntropy, 0>>},
      {"cross_entropy_backward", "copies_avx2_cross_entropy_backward",
       applies_after_copies<applies<true>>, prepare_after_copies<prepare<CrossEntropyGrad, 1>>},
  };
  return entries;
}

}  // namespace tessera::cpu
