#include "tessera/backend/cpu/kernels/window_sums_code.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/backend/cpu/kernels/cut_evenly.h"

namespace tessera::cpu {
namespace {

constexpr int64_t vector_bytes = 32;
constexpr int registers = 16;
constexpr int64_t latency = 4;  // cycles of a multiply-add, of which two begin per cycle
constexpr int64_t most_channels = 6;

// The held operands of a kernel element and one more for the operand that changes.
bool fits_registers(int64_t channels, int64_t pixels) {
  return channels * pixels + std::min(channels, pixels) + 1 <= registers;
}

int64_t most_pixels(int64_t channels) {
  int64_t pixels = 1;
  while (fits_registers(channels, pixels + 1)) ++pixels;
  return pixels;
}

// Cycles of a row for one kernel row and source channel, by the units that are busiest.
double row_cycles(const WindowAxis& x, int64_t channels, int64_t pixels) {
  double cycles = 0;
  int64_t begin = 0;
  for (const int64_t size : cut_evenly(x.result, pixels)) {
    double tile = 0;
    for (int64_t k = 0; k < x.kernel; ++k) {
      int64_t valid = 0;
      for (int64_t p = begin; p < begin + size; ++p) valid += x.met(p, k) != WindowAxis::none;
      if (valid == 0) continue;
      const int64_t products = valid * channels, loads = valid + channels;
      tile += static_cast<double>(std::max(products, loads)) / 2;
    }
    double chain = 0;  // of the pixel that meets most elements
    for (int64_t p = begin; p < begin + size; ++p) {
      int64_t valid = 0;
      for (int64_t k = 0; k < x.kernel; ++k) valid += x.met(p, k) != WindowAxis::none;
      chain = std::max(chain, static_cast<double>(valid * latency));
    }
    cycles += std::max(tile, chain) + 1;
    begin += size;
  }
  return cycles;
}

struct TileChoice {
  int64_t pixels = 1;
  double cycles = 0;
};

TileChoice best_tile(const WindowAxis& x, int64_t channels) {
  TileChoice best{1, std::numeric_limits<double>::infinity()};
  for (int64_t pixels = most_pixels(channels); pixels >= 1; --pixels) {
    const double cycles = row_cycles(x, channels, pixels);
    if (cycles < best.cycles) best = {pixels, cycles};
  }
  return best;
}

}  // namespace

int64_t WindowAxis::met(int64_t position, int64_t element) const {
  int64_t at = position * stride - padding + element;
  if (backward) {
    at = position + padding - element;
    if (at < 0 || at % stride != 0) return none;
    at /= stride;
  }
  return at >= 0 && at < source ? at : none;
}

int64_t WindowSums::multiply_adds() const {
  const auto meetings = [](const WindowAxis& axis) {
    int64_t count = 0;
    for (int64_t p = 0; p < axis.result; ++p) {
      for (int64_t k = 0; k < axis.kernel; ++k) count += axis.met(p, k) != WindowAxis::none;
    }
    return count;
  };
  return 8 * meetings(y) * meetings(x) * result_channels * source_channels;
}

std::vector<WindowRow> window_rows(const WindowSums& sums) {
  std::vector<WindowRow> rows;
  for (int64_t position = 0; position < sums.y.result; ++position) {
    WindowRow row{0, 0, position * sums.x.result * vector_bytes, 0};
    for (int64_t k = sums.y.kernel - 1; k >= 0; --k) {
      const int64_t at = sums.y.met(position, k);
      if (at == WindowAxis::none) continue;
      row.source = at * sums.x.source * vector_bytes;
      row.weight = k * sums.x.kernel * static_cast<int64_t>(sizeof(float));
      ++row.kernel_rows;
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<int64_t> window_channel_blocks(const WindowSums& sums) {
  std::vector<int64_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t limit = std::min(most_channels, sums.result_channels); limit >= 1; --limit) {
    const auto blocks = cut_evenly(sums.result_channels, limit);
    double cycles = 0;
    for (const int64_t channels : blocks) cycles += best_tile(sums.x, channels).cycles;
    if (cycles >= least) continue;
    least = cycles;
    best = blocks;
  }
  return best;
}

// Neighbouring pixels that are summed together, and how often the same code serves, each time
// `result_step` and `source_step` further.
struct WindowSumsCode::Tile {
  int64_t pixels = 0, begin = 0, first_source = 0;
  std::vector<int64_t> met;  // [kernel element][pixel], relative to first_source
  int64_t repeats = 1, source_step = 0;

  Tile(const WindowAxis& x, int64_t first, int64_t count) : pixels(count), begin(first) {
    first_source = std::numeric_limits<int64_t>::max();
    for (int64_t k = 0; k < x.kernel; ++k) {
      for (int64_t p = 0; p < count; ++p) {
        met.push_back(x.met(first + p, k));
        if (met.back() != WindowAxis::none) first_source = std::min(first_source, met.back());
      }
    }
    if (first_source == std::numeric_limits<int64_t>::max()) first_source = 0;
    for (int64_t& at : met) {
      if (at != WindowAxis::none) at -= first_source;
    }
  }

  bool takes(const Tile& next) {
    if (next.met != met || next.begin != begin + repeats * pixels) return false;
    const int64_t step = next.first_source - first_source;
    if (repeats > 1 && step != repeats * source_step) return false;
    if (repeats == 1) source_step = step;
    ++repeats;
    return true;
  }
};

// Registers: rdi the call, r8 source, r9 result, rcx weight, rsi/rdx rows and their end; of the
// row: r14 kernel rows; of the tile: r10 source, r11 result, r13 repeats left; of the sum: rax
// channels left, rbx kernel rows left, r12/r15 source and weight of the channel, rbp/rdi those of
// the row.
WindowSumsCode::WindowSumsCode(const WindowSums& sums, int64_t channels)
    : sums_(sums), channels_(channels) {
  using namespace Xbyak::util;
  const Xbyak::Reg64 saved[] = {rbx, rbp, r12, r13, r14, r15};
  for (const auto& reg : saved) push(reg);
  push(rdi);
  Xbyak::Label next_row, end;
  mov(rsi, ptr[rdi + offsetof(WindowCall, rows)]);
  L(next_row);
  mov(rdi, ptr[rsp]);
  cmp(rsi, ptr[rdi + offsetof(WindowCall, rows_end)]);
  jae(end, T_NEAR);
  mov(r8, ptr[rdi + offsetof(WindowCall, source)]);
  add(r8, ptr[rsi + offsetof(WindowRow, source)]);
  mov(rcx, ptr[rdi + offsetof(WindowCall, weight)]);
  add(rcx, ptr[rsi + offsetof(WindowRow, weight)]);
  mov(r9, ptr[rdi + offsetof(WindowCall, result)]);
  add(r9, ptr[rsi + offsetof(WindowRow, result)]);
  mov(rdx, ptr[rdi + offsetof(WindowCall, bias)]);
  mov(r14, ptr[rsi + offsetof(WindowRow, kernel_rows)]);
  emit_row();
  add(rsi, static_cast<uint32_t>(sizeof(WindowRow)));
  jmp(next_row, T_NEAR);
  L(end);
  pop(rdi);
  for (int i = 5; i >= 0; --i) pop(saved[i]);
  vzeroupper();
  ret();
  finish();
  run_ = entry<void (*)(const WindowCall*)>();
}

void WindowSumsCode::emit_row() {
  std::vector<Tile> tiles;
  int64_t begin = 0;
  for (const int64_t size : cut_evenly(sums_.x.result, best_tile(sums_.x, channels_).pixels)) {
    const Tile tile(sums_.x, begin, size);
    if (tiles.empty() || !tiles.back().takes(tile)) tiles.push_back(tile);
    begin += size;
  }
  for (const Tile& tile : tiles) emit_tile(tile);
}

void WindowSumsCode::emit_tile(const Tile& tile) {
  using namespace Xbyak::util;
  const auto sum_of = [&](int64_t channel, int64_t pixel) {
    return Xbyak::Ymm(static_cast<int>(channel * tile.pixels + pixel));
  };
  const int64_t plane = sums_.y.result * sums_.x.result * vector_bytes;
  const int64_t source_plane = sums_.y.source * sums_.x.source * vector_bytes;
  Xbyak::Label repeat, next_channel, next_kernel_row, store;
  lea(r10, ptr[r8 + static_cast<int>(tile.first_source * vector_bytes)]);
  lea(r11, ptr[r9 + static_cast<int>(tile.begin * vector_bytes)]);
  if (tile.repeats > 1) mov(r13d, static_cast<uint32_t>(tile.repeats));
  L(repeat);
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t p = 0; p < tile.pixels; ++p) {
      const auto sum = sum_of(c, p);
      if (!sums_.bias) {
        vxorps(sum, sum, sum);
      } else if (p == 0) {
        vbroadcastss(sum, ptr[rdx + static_cast<int>(c * 4)]);
      } else {
        vmovaps(sum, sum_of(c, 0));
      }
    }
  }
  test(r14, r14);
  jz(store, T_NEAR);
  mov(r12, r10);
  mov(r15, rcx);
  mov(eax, static_cast<uint32_t>(sums_.source_channels));
  L(next_channel);
  mov(rbp, r12);
  mov(rdi, r15);
  mov(ebx, r14d);
  L(next_kernel_row);
  emit_taps(tile);
  const int64_t row_bytes = sums_.x.source * vector_bytes;
  // Backwards, a later kernel row meets an earlier row of the source.
  add(rbp, static_cast<int>(sums_.y.backward ? -row_bytes : row_bytes));
  const int64_t kernel_step = sums_.y.backward ? sums_.y.stride : 1;
  add(rdi, static_cast<int>(kernel_step * sums_.x.kernel * 4));
  dec(ebx);
  jnz(next_kernel_row, T_NEAR);
  add(r12, static_cast<int>(source_plane));
  add(r15, static_cast<int>(sums_.source_channel_stride * 4));
  dec(eax);
  jnz(next_channel, T_NEAR);
  L(store);
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t p = 0; p < tile.pixels; ++p) {
      vmovups(ptr[r11 + static_cast<int>(c * plane + p * vector_bytes)], sum_of(c, p));
    }
  }
  if (tile.repeats == 1) return;
  add(r10, static_cast<int>(tile.source_step * vector_bytes));
  add(r11, static_cast<int>(tile.pixels * vector_bytes));
  dec(r13d);
  jnz(repeat, T_NEAR);
}

// One row of the kernel. The smaller side is held in registers, the other goes through one.
void WindowSumsCode::emit_taps(const Tile& tile) {
  using namespace Xbyak::util;
  const auto sums = static_cast<int>(channels_ * tile.pixels);
  const Xbyak::Ymm passing(registers - 1);
  const auto held = [&](size_t i) { return Xbyak::Ymm(sums + static_cast<int>(i)); };
  for (int64_t k = 0; k < sums_.x.kernel; ++k) {
    const int64_t* met = tile.met.data() + k * tile.pixels;
    std::vector<int64_t> pixels;
    for (int64_t p = 0; p < tile.pixels; ++p) {
      if (met[p] != WindowAxis::none) pixels.push_back(p);
    }
    const auto image = [&](int64_t p) {
      return ptr[rbp + static_cast<int>(met[p] * vector_bytes)];
    };
    const auto weight = [&](int64_t c) {
      return ptr[rdi + static_cast<int>((c * sums_.result_channel_stride + k) * 4)];
    };
    const auto sum_of = [&](int64_t c, int64_t p) {
      return Xbyak::Ymm(static_cast<int>(c * tile.pixels + p));
    };
    if (pixels.empty()) continue;
    if (channels_ <= static_cast<int64_t>(pixels.size())) {
      for (int64_t c = 0; c < channels_; ++c) vbroadcastss(held(static_cast<size_t>(c)), weight(c));
      for (const int64_t p : pixels) {
        vmovups(passing, image(p));
        for (int64_t c = 0; c < channels_; ++c) {
          vfmadd231ps(sum_of(c, p), passing, held(static_cast<size_t>(c)));
        }
      }
      continue;
    }
    for (size_t i = 0; i < pixels.size(); ++i) vmovups(held(i), image(pixels[i]));
    for (int64_t c = 0; c < channels_; ++c) {
      vbroadcastss(passing, weight(c));
      for (size_t i = 0; i < pixels.size(); ++i) {
        vfmadd231ps(sum_of(c, pixels[i]), held(i), passing);
      }
    }
  }
}

}  // namespace tessera::cpu
