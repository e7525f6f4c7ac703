#include "tessera/backend/cpu/kernels/x86/window/grad_code.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/backend/cpu/kernels/cut_evenly.h"
#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

constexpr int64_t vector_bytes = 32;
constexpr int registers = 16;
constexpr int64_t latency =
    5;  // cycles of a multiply-add, of which two begin per cycle, and some room
constexpr int64_t unrolled_products = 36;

bool fits_registers(int64_t channels, int64_t elements) {
  return channels * elements + std::min(channels, elements) + 1 <= registers;
}

int64_t sets_of(int64_t channels, int64_t elements) {
  const int64_t sums = channels * elements;
  const int64_t others = std::min(channels, elements) + 1;
  return std::clamp<int64_t>((registers - others) / sums, 1, divided_up(2 * latency, sums));
}

// Cycles of one pixel, by the units that are busiest.
double pixel_cycles(int64_t channels, int64_t elements) {
  const int64_t sums = channels * elements;
  const int64_t units = std::max(sums, channels + elements);
  // What is not busiest still takes some room from it.
  const double others = 0.05 * static_cast<double>(channels + elements) + 0.5;
  return others +
         std::max(static_cast<double>(units) / 2,
                  static_cast<double>(latency) / static_cast<double>(sets_of(channels, elements)));
}

}  // namespace

WindowGradBlocks window_grad_blocks(int64_t output_channels, int64_t kernel_width) {
  WindowGradBlocks best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t width = 1; width <= kernel_width; ++width) {
    for (int64_t height = 1; height <= std::min<int64_t>(6, output_channels); ++height) {
      if (!fits_registers(height, width)) continue;
      WindowGradBlocks blocks{cut_evenly(output_channels, height), cut_evenly(kernel_width, width)};
      double cycles = 0;
      for (const int64_t channels : blocks.channels) {
        for (const int64_t elements : blocks.elements) cycles += pixel_cycles(channels, elements);
      }
      if (cycles >= least) continue;
      least = cycles;
      best = std::move(blocks);
    }
  }
  return best;
}

Xbyak::Ymm WindowGradCode::sum_of(int64_t set, int64_t channel, int64_t element) const {
  return Xbyak::Ymm(static_cast<int>((set * channels_ + channel) * count_ + element));
}

// Registers: rdi the call, rsi the gradient's row, rdx the source's, rcx rows left; of the tile: r8
// gradient, r9 source, eax repeats left.
WindowGradCode::WindowGradCode(const WindowGrad& grad, int64_t channels, int64_t first,
                               int64_t count)
    : LaneCode(grad.lanes),
      grad_(grad),
      channels_(channels),
      first_(first),
      count_(count),
      sets_(sets_of(channels, count)) {
  using namespace Xbyak::util;
  mov(rsi, ptr[rdi + offsetof(WindowGradCall, grad)]);
  mov(rdx, ptr[rdi + offsetof(WindowGradCall, source)]);
  mov(rcx, ptr[rdi + offsetof(WindowGradCall, rows)]);
  mov(rdi, ptr[rdi + offsetof(WindowGradCall, sums)]);
  const auto each_sum = [&](const auto& work) {
    for (int64_t c = 0; c < channels_; ++c) {
      for (int64_t k = 0; k < count_; ++k) work(c, k);
    }
  };
  each_sum([&](int64_t c, int64_t k) {
    vmovups(sum_of(0, c, k), ptr[rdi + static_cast<int>((c * count_ + k) * vector_bytes)]);
    for (int64_t set = 1; set < sets_; ++set) {
      const auto sum = sum_of(set, c, k);
      vxorps(sum, sum, sum);
    }
  });
  Xbyak::Label next_row;
  L(next_row);
  emit_row();
  add(rsi, static_cast<int>(grad_.x.result * lanes_.pixel_bytes()));
  add(rdx, static_cast<int>(grad_.y.stride * grad_.x.source * lanes_.pixel_bytes()));
  dec(rcx);
  jnz(next_row, T_NEAR);
  each_sum([&](int64_t c, int64_t k) {
    const auto sum = sum_of(0, c, k);
    for (int64_t set = 1; set < sets_; ++set) vaddps(sum, sum, sum_of(set, c, k));
    vmovups(ptr[rdi + static_cast<int>((c * count_ + k) * vector_bytes)], sum);
  });
  vzeroupper();
  ret();
  emit_masks();
  finish();
  run_ = entry<void (*)(const WindowGradCall*)>();
}

void WindowGradCode::emit_row() {
  const int64_t unroll = std::max(sets_, unrolled_products / (channels_ * count_));
  // The first and last may miss some elements; they stand alone so that all others are alike.
  const auto complete = [&](int64_t vector) {
    for (int64_t k = first_; k < first_ + count_; ++k) {
      if (meeting_of(grad_.x, lanes_, vector, k).lanes != lanes_.all()) return false;
    }
    return true;
  };
  const int64_t vectors = lanes_.vectors(grad_.x.result);
  int64_t begin = 0, end = vectors;
  while (begin < end && !complete(begin)) ++begin;
  while (end > begin && !complete(end - 1)) --end;
  std::vector<WindowTile> tiles;
  const auto append = [&](int64_t from, int64_t to) {
    if (from == to) return;
    for (const int64_t size : cut_evenly(to - from, unroll)) {
      const WindowTile tile(grad_.x, lanes_, from, size, first_, count_);
      if (tiles.empty() || !tiles.back().takes(tile)) tiles.push_back(tile);
      from += size;
    }
  };
  append(0, begin);
  append(begin, end);
  append(end, vectors);
  for (const WindowTile& tile : tiles) emit_tile(tile);
}

void WindowGradCode::emit_tile(const WindowTile& tile) {
  using namespace Xbyak::util;
  const Xbyak::Ymm passing(registers - 1);
  const auto held = [&](size_t i) {
    return Xbyak::Ymm(static_cast<int>(sets_ * channels_ * count_) + static_cast<int>(i));
  };
  const int64_t plane = grad_.y.result * grad_.x.result * lanes_.pixel_bytes();
  lea(r8, ptr[rsi + static_cast<int>(tile.first_pixel * lanes_.pixel_bytes())]);
  lea(r9, ptr[rdx + static_cast<int>(tile.first_source * lanes_.pixel_bytes())]);
  if (tile.repeats > 1) mov(eax, static_cast<uint32_t>(tile.repeats));
  Xbyak::Label repeat;
  L(repeat);
  for (int64_t v = 0; v < tile.vectors; ++v) {
    const int64_t set = v % sets_;
    std::vector<int64_t> elements;
    for (int64_t k = 0; k < count_; ++k) {
      if (tile.met(v, k).lanes != 0) elements.push_back(k);
    }
    if (elements.empty()) continue;
    const auto load_grad = [&](const Xbyak::Ymm& to, int64_t c) {
      const auto i = static_cast<size_t>(v);
      const int64_t at = c * plane + tile.pixels[i] * lanes_.pixel_bytes();
      load(to, ptr[r8 + static_cast<int>(at)], tile.fresh[i]);
    };
    const auto load_source = [&](const Xbyak::Ymm& to, int64_t k) {
      const WindowMeeting& met = tile.met(v, k);
      load(to, ptr[r9 + static_cast<int>(met.source * lanes_.pixel_bytes())], met.lanes);
    };
    if (channels_ <= static_cast<int64_t>(elements.size())) {
      for (int64_t c = 0; c < channels_; ++c) load_grad(held(static_cast<size_t>(c)), c);
      for (const int64_t k : elements) {
        load_source(passing, k);
        for (int64_t c = 0; c < channels_; ++c) {
          vfmadd231ps(sum_of(set, c, k), passing, held(static_cast<size_t>(c)));
        }
      }
      continue;
    }
    for (size_t i = 0; i < elements.size(); ++i) load_source(held(i), elements[i]);
    for (int64_t c = 0; c < channels_; ++c) {
      load_grad(passing, c);
      for (size_t i = 0; i < elements.size(); ++i) {
        vfmadd231ps(sum_of(set, c, elements[i]), held(i), passing);
      }
    }
  }
  if (tile.repeats == 1) return;
  add(r8, static_cast<int>(tile.pixel_step * lanes_.pixel_bytes()));
  add(r9, static_cast<int>(tile.source_step * lanes_.pixel_bytes()));
  dec(eax);
  jnz(repeat, T_NEAR);
}

}  // namespace tessera::cpu
