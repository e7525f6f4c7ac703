// The steps of optimisers on halves: vectors of them are widened, updated as floats, and rounded
// again. Where only some of an update are halves, this is done tile by tile in the first-level
// cache.
#include <algorithm>
#include <cstring>

#include "tessera/backend/cpu/kernels/epilogue.h"
#include "tessera/backend/cpu/kernels/x86/halves.h"
#include "tessera/backend/cpu/kernels/x86/update_rules.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/optimizer_parts.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using namespace optimizer_parts;
using avx2::lanes;

constexpr int64_t elements_per_piece = 16 << 10;
constexpr int64_t tile = 1024;
constexpr size_t most_memories = 2, most_slots = 2 + most_memories;
constexpr size_t most_operands = 12, most_results = 4;

// Row-major numbers of elements, eight by eight in the order in which they lie in memory.
class Numbering {
 public:
  explicit Numbering(const KernelOperand& operand) {
    const Geometry& physical = operand.geometry;
    if (operand.layout.plain()) return;
    const Geometry logical = dense(logical_shape(operand.layout, physical.shape));
    Strides strides = physical_geometry(operand.layout, logical).strides;
    distance_ = strides.back();
    for (size_t dim = 0; dim + 1 < strides.size(); ++dim) {
      sizes_[rank_] = physical.shape[dim];
      strides_[rank_++] = strides[dim];
    }
  }

  // Between two of the eight.
  int64_t distance() const { return distance_; }

  // From some place on, a multiple of eight.
  class Walk {
   public:
    Walk(const Numbering& numbering, int64_t place) : n_(numbering), number_(place) {
      if (n_.rank_ == 0) return;
      number_ = 0;
      place /= lanes;
      for (size_t dim = n_.rank_; dim-- > 0;) {
        index_[dim] = place % n_.sizes_[dim];
        number_ += index_[dim] * n_.strides_[dim];
        place /= n_.sizes_[dim];
      }
    }

    int64_t number() const { return number_; }  // of the first of the eight

    void next() {
      if (n_.rank_ == 0) number_ += lanes;
      for (size_t dim = n_.rank_; dim-- > 0;) {
        number_ += n_.strides_[dim];
        if (++index_[dim] < n_.sizes_[dim]) return;
        number_ -= index_[dim] * n_.strides_[dim];
        index_[dim] = 0;
      }
    }

   private:
    const Numbering& n_;
    int64_t number_;
    std::array<int64_t, most_dimensions> index_{};
  };

 private:
  size_t rank_ = 0;  // 0: numbers are places
  std::array<int64_t, most_dimensions> sizes_{}, strides_{};
  int64_t distance_ = 1;
};

// What of an update lies in memory for each element.
struct Slot {
  size_t operand = 0, result = 0;
  bool half = false;
};

TESSERA_AVX2_INLINE __m256 load_some(const Half* from, int64_t count) {
  return count == lanes ? load_eight(from) : load_first(from, count);
}

TESSERA_AVX2_INLINE void store_some(Half* to, __m128i halves, int64_t count) {
  if (count == lanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  } else {
    std::memcpy(static_cast<void*>(to), &halves, static_cast<size_t>(count) * sizeof(Half));
  }
}

// A range of elements of an update of nothing but halves.
struct HalvesRange {
  const Half* grad;
  float scale;  // of the gradient
  // The parameter, then what is remembered of it.
  std::array<const Half*, 1 + most_memories> in = {};
  std::array<Half*, 1 + most_memories> out = {};
  std::array<RoundingStream, 1 + most_memories> streams = {};
  int64_t begin, end;
};

// Of the first `count` elements from `i` on, with the row-major number of the first.
template <bool by_chance, size_t memories, typename Rule>
TESSERA_AVX2_INLINE void update_some(const Rule& rule, const HalvesRange& range, int64_t i,
                                     int64_t count, int64_t number, int64_t distance) {
  __m256 x[2 + memories], y[1 + memories];
  x[0] = load_some(range.in[0] + i, count);
  x[1] = _mm256_mul_ps(load_some(range.grad + i, count), _mm256_set1_ps(range.scale));
  for (size_t k = 1; k <= memories; ++k) x[1 + k] = load_some(range.in[k] + i, count);
  rule(x, y);
  for (size_t k = 0; k <= memories; ++k) {
    const __m256 made = k == 0 ? y[0] : update_rules::remembered(y[k]);
    const __m128i halves = by_chance
                               ? VectorRounding(range.streams[k], distance).rounded(made, number)
                               : _mm256_cvtps_ph(made, _MM_FROUND_TO_NEAREST_INT);
    store_some(range.out[k] + i, halves, count);
  }
}

// All by value: what is only referred to would be read anew after every store.
template <bool by_chance, size_t memories, typename Rule>
TESSERA_AVX2 void sweep_halves(const Rule rule, const HalvesRange range,
                               const Numbering& numbering) {
  const int64_t distance = numbering.distance();
  Numbering::Walk walk(numbering, range.begin);
  int64_t i = range.begin;
  for (; i + lanes <= range.end; i += lanes) {
    update_some<by_chance, memories>(rule, range, i, lanes, walk.number(), distance);
    if (by_chance) walk.next();
  }
  if (i == range.end) return;
  update_some<by_chance, memories>(rule, range, i, range.end - i, walk.number(), distance);
}

template <typename Update>
class HalvesUpdateKernel : public PreparedKernel {
 public:
  explicit HalvesUpdateKernel(const KernelUse& use)
      : numbering_(use.inputs[param]), keys_(use.attrs.integers("keys")) {
    const auto half = [&](size_t i) { return use.inputs[i].dtype == DType::f16; };
    half_grad_ = half(grad);
    const size_t own = operand_specs(*row_in_single(use.op)).size();
    if (use.has_input(own)) scale_ = own;
    slots_.push_back({param, 0, half(param)});
    for (size_t i = 2; i < use.outputs.size(); ++i) slots_.push_back({i + 1, i, half(i + 1)});
    all_halves_ = half_grad_ && std::all_of(slots_.begin(), slots_.end(),
                                            [](const Slot& slot) { return slot.half; });
  }

  void run(const KernelCall& call, std::span<std::byte>) const override {
    std::array<RoundingStream, most_slots> streams;
    for (size_t i = 0; i < keys_.size(); ++i) {
      streams[i] = rounding_stream(call.rng, static_cast<uint64_t>(keys_[i]));
    }
    call.pool.run_ranges(call.outputs[0].numel(), elements_per_piece,
                         [&](int64_t begin, int64_t end) {
                           if (all_halves_) return run_vectors(call, streams, begin, end);
                           run_tiles(call, streams, begin, end);
                         });
    Room room;
    Tile(*this, call, room).update.finish(call);
  }

 private:
  struct Room {
    alignas(64) float grad[tile], values[1 + most_memories][tile];
  };

  // The update as one of the room's floats.
  struct Tile {
    Tile(const HalvesUpdateKernel& kernel, const KernelCall& call, Room& room)
        : seen(call), update(in_room(kernel, room)) {}

    KernelCall seen;
    std::array<TensorView, most_operands> inputs;
    std::array<TensorView, most_results> outputs;
    Update update;

   private:
    KernelCall& in_room(const HalvesUpdateKernel& kernel, Room& room) {
      std::copy(seen.inputs.begin(), seen.inputs.end(), inputs.begin());
      std::copy(seen.outputs.begin(), seen.outputs.end(), outputs.begin());
      const auto put = [](TensorView& view, float* floats) {
        view.data = reinterpret_cast<std::byte*>(floats);
        view.dtype = DType::f32;
      };
      put(inputs[grad], room.grad);
      for (size_t i = 0; i < kernel.slots_.size(); ++i) {
        put(inputs[kernel.slots_[i].operand], room.values[i]);
        put(outputs[kernel.slots_[i].result], room.values[i]);
      }
      seen.inputs = {inputs.data(), seen.inputs.size()};
      seen.outputs = {outputs.data(), seen.outputs.size()};
      return seen;
    }
  };

  static void read(const TensorView& from, bool half, int64_t begin, int64_t count, float* to) {
    if (half) return widen_halves(from.as<Half>() + begin, to, count);
    std::memcpy(to, from.as<float>() + begin, static_cast<size_t>(count) * sizeof(float));
  }

  TESSERA_AVX2 static void scale(float* values, float factor, int64_t count) {
    for (int64_t i = 0; i < count; i += lanes) {
      const __m256 product = _mm256_mul_ps(_mm256_load_ps(values + i), _mm256_set1_ps(factor));
      _mm256_store_ps(values + i, product);
    }
  }

  void run_vectors(const KernelCall& call, std::span<const RoundingStream> streams, int64_t begin,
                   int64_t end) const {
    Room room;
    const Tile numbers(*this, call, room);
    HalvesRange range{.grad = call.inputs[grad].as<Half>(),
                      .scale = scale_ == 0 ? 1 : *call.inputs[scale_].as<float>(),
                      .begin = begin,
                      .end = end};
    for (size_t i = 0; i < slots_.size(); ++i) {
      range.in[i] = call.inputs[slots_[i].operand].as<Half>();
      range.out[i] = call.outputs[slots_[i].result].as<Half>();
      range.streams[i] = streams[i];
    }
    numbers.update.with_rule([&](auto memories, auto rule) {
      if (keys_.empty()) {
        sweep_halves<false, memories>(rule, range, numbering_);
      } else {
        sweep_halves<true, memories>(rule, range, numbering_);
      }
      // What the rule leaves alone rests.
      for (size_t i = 1 + memories; i < std::min(slots_.size(), range.in.size()); ++i) {
        if (range.out[i] == range.in[i]) continue;
        std::copy(range.in[i] + begin, range.in[i] + end, range.out[i] + begin);
      }
    });
  }

  void run_tiles(const KernelCall& call, std::span<const RoundingStream> streams, int64_t begin,
                 int64_t end) const {
    Room room;
    const Tile tile_of_room(*this, call, room);
    for (int64_t at = begin; at < end; at += tile) {
      const int64_t count = std::min(tile, end - at);
      read(call.inputs[grad], half_grad_, at, count, room.grad);
      if (scale_ != 0) scale(room.grad, *call.inputs[scale_].as<float>(), count);
      for (size_t i = 0; i < slots_.size(); ++i) {
        read(call.inputs[slots_[i].operand], slots_[i].half, at, count, room.values[i]);
      }
      tile_of_room.update.run(0, count);
      size_t rounded = 0;
      for (size_t i = 0; i < slots_.size(); ++i) {
        const TensorView& to = call.outputs[slots_[i].result];
        if (!slots_[i].half) {
          std::memcpy(to.as<float>() + at, room.values[i],
                      static_cast<size_t>(count) * sizeof(float));
        } else if (keys_.empty()) {
          narrow_floats(room.values[i], to.as<Half>() + at, count);
        } else {
          round_by_chance(streams[rounded++], room.values[i], to.as<Half>() + at, at, count);
        }
      }
    }
  }

  TESSERA_AVX2 void round_by_chance(const RoundingStream& stream, const float* from, Half* to,
                                    int64_t begin, int64_t count) const {
    const VectorRounding rounding(stream, numbering_.distance());
    Numbering::Walk walk(numbering_, begin);
    for (int64_t i = 0; i < count; i += lanes, walk.next()) {
      const __m128i halves = rounding.rounded(_mm256_loadu_ps(from + i), walk.number());
      store_some(to + i, halves, std::min(lanes, count - i));
    }
  }

  Numbering numbering_;
  std::vector<int64_t> keys_;
  bool half_grad_ = false, all_halves_ = false;
  size_t scale_ = 0;  // the operand that gradients are multiplied with; 0: none
  std::vector<Slot> slots_;
};

bool is_half_or_float(const KernelOperand& operand) {
  return operand.dtype == DType::f16 || operand.dtype == DType::f32;
}

// The layouts may be any, if they are the same.
bool applies(const KernelUse& use) {
  const KernelOperand& first = use.inputs[param];
  const auto is_like_param = [&](const KernelOperand& operand) {
    return is_half_or_float(operand) && operand.layout == first.layout &&
           operand.geometry.shape == first.geometry.shape &&
           same_elements(operand.geometry, dense(operand.geometry.shape));
  };
  if (use.inputs.size() > most_operands || use.outputs.size() > most_results) return false;
  if (first.geometry.shape.size() > most_dimensions) return false;
  if (!is_like_param(first) || !is_like_param(use.inputs[grad])) return false;
  for (size_t i = 0; i < use.outputs.size(); ++i) {
    if (i == 1) continue;  // the step
    const size_t replaced = i == 0 ? size_t{param} : i + 1;
    if (!is_like_param(use.outputs[i])) return false;
    if (!use.has_input(replaced) || !is_like_param(use.inputs[replaced])) return false;
    if (use.inputs[replaced].dtype != use.outputs[i].dtype) return false;
  }
  return true;
}

template <typename Update>
std::unique_ptr<PreparedKernel> prepare(const KernelUse& use) {
  return std::make_unique<HalvesUpdateKernel<Update>>(use);
}

}  // namespace

std::span<const KernelEntry> update_of_halves_entries() {
  static constexpr KernelEntry entries[] = {
      {"sgd_of_halves", "avx2", applies, prepare<SgdUpdate>},
      {"adam_of_halves", "avx2", applies, prepare<AdamUpdate>},
      {"rmsprop_of_halves", "avx2", applies, prepare<RmspropUpdate>},
  };
  return entries;
}

}  // namespace tessera::cpu
