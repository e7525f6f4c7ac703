#include "tessera/backend/cpu/kernels/x86/window/sums_code.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "tessera/backend/cpu/kernels/cut_evenly.h"

namespace tessera::cpu {
namespace {

constexpr int registers = 16;
constexpr int64_t latency = 4;  // cycles of a multiply-add, of which two begin per cycle
constexpr int64_t most_channels = 6;

// The held operands of a kernel element and one more for the operand that changes.
bool fits_registers(int64_t channels, int64_t vectors) {
  return channels * vectors + std::min(channels, vectors) + 1 <= registers;
}

int64_t most_vectors(int64_t channels) {
  int64_t vectors = 1;
  while (fits_registers(channels, vectors + 1)) ++vectors;
  return vectors;
}

// Cycles of a row for one kernel row and source channel, by the units that are busiest.
double row_cycles(const WindowSums& sums, int64_t channels, int64_t vectors) {
  double cycles = 0;
  int64_t begin = 0;
  for (const int64_t size : cut_evenly(sums.lanes.vectors(sums.x.result), vectors)) {
    double tile = 0;
    std::vector<int64_t> chains(static_cast<size_t>(size), 0);
    for (int64_t k = 0; k < sums.x.kernel; ++k) {
      int64_t valid = 0;
      for (int64_t v = 0; v < size; ++v) {
        if (meeting_of(sums.x, sums.lanes, begin + v, k).lanes == 0) continue;
        ++valid;
        ++chains[static_cast<size_t>(v)];
      }
      if (valid == 0) continue;
      tile += static_cast<double>(std::max(valid * channels, valid + channels)) / 2;
    }
    const int64_t chain = *std::max_element(chains.begin(), chains.end()) * latency;
    cycles += std::max(tile, static_cast<double>(chain)) + 1;
    begin += size;
  }
  return cycles;
}

struct TileChoice {
  int64_t vectors = 1;
  double cycles = 0;
};

TileChoice best_tile(const WindowSums& sums, int64_t channels) {
  TileChoice best{1, std::numeric_limits<double>::infinity()};
  for (int64_t vectors = most_vectors(channels); vectors >= 1; --vectors) {
    const double cycles = row_cycles(sums, channels, vectors);
    if (cycles < best.cycles) best = {vectors, cycles};
  }
  return best;
}

}  // namespace

int64_t WindowSums::multiply_adds() const {
  const auto meetings = [](const WindowAxis& axis) {
    int64_t count = 0;
    for (int64_t p = 0; p < axis.result; ++p) {
      for (int64_t k = 0; k < axis.kernel; ++k) count += axis.met(p, k) != WindowAxis::none;
    }
    return count;
  };
  const int64_t images = lanes.of_a_row ? 1 : 8;
  return images * meetings(y) * meetings(x) * result_channels * source_channels;
}

std::vector<WindowRow> window_rows(const WindowSums& sums) {
  std::vector<WindowRow> rows;
  for (int64_t position = 0; position < sums.y.result; ++position) {
    WindowRow row{0, 0, position * sums.x.result * sums.lanes.pixel_bytes(), 0};
    for (int64_t k = sums.y.kernel - 1; k >= 0; --k) {
      const int64_t at = sums.y.met(position, k);
      if (at == WindowAxis::none) continue;
      row.source = at * sums.x.source * sums.lanes.pixel_bytes();
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
    for (const int64_t channels : blocks) cycles += best_tile(sums, channels).cycles;
    if (cycles >= least) continue;
    least = cycles;
    best = blocks;
  }
  return best;
}

// Registers: rdi the call, r8 source, r9 result, rcx weight, rsi/rdx rows and their end; of the
// row: r14 kernel rows; of the tile: r10 source, r11 result, r13 repeats left; of the sum: rax
// channels left, rbx kernel rows left, r12/r15 source and weight of the channel, rbp/rdi those of
// the row.
WindowSumsCode::WindowSumsCode(const WindowSums& sums, int64_t channels)
    : LaneCode(sums.lanes), sums_(sums), channels_(channels) {
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
  emit_masks();
  finish();
  run_ = entry<void (*)(const WindowCall*)>();
}

// Which lanes of each vector: what is added to may be counted once only.
const std::vector<uint32_t>& WindowSumsCode::written(const WindowTile& tile) const {
  return sums_.adds ? tile.fresh : tile.inside;
}

void WindowSumsCode::emit_row() {
  std::vector<WindowTile> tiles;
  int64_t begin = 0;
  for (const int64_t size :
       cut_evenly(lanes_.vectors(sums_.x.result), best_tile(sums_, channels_).vectors)) {
    const WindowTile tile(sums_.x, lanes_, begin, size, 0, sums_.x.kernel);
    if (tiles.empty() || !tiles.back().takes(tile)) tiles.push_back(tile);
    begin += size;
  }
  for (const WindowTile& tile : tiles) emit_tile(tile);
}

void WindowSumsCode::emit_tile(const WindowTile& tile) {
  using namespace Xbyak::util;
  Xbyak::Label repeat, finished;
  lea(r10, ptr[r8 + static_cast<int>(tile.first_source * sums_.source_pixel_bytes())]);
  lea(r11, ptr[r9 + static_cast<int>(tile.first_pixel * sums_.result_pixel_bytes())]);
  if (tile.repeats > 1) mov(r13d, static_cast<uint32_t>(tile.repeats));
  L(repeat);
  emit_start(tile);
  test(r14, r14);
  jz(finished, T_NEAR);
  emit_sums(tile);
  L(finished);
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t v = 0; v < tile.vectors; ++v) {
      const auto i = static_cast<size_t>(v);
      const int64_t at =
          c * sums_.result_plane_bytes() + tile.pixels[i] * sums_.result_pixel_bytes();
      store(ptr[r11 + static_cast<int>(at)], Xbyak::Ymm(static_cast<int>(c * tile.vectors + v)),
            written(tile)[i], Xbyak::Ymm(registers - 1));
    }
  }
  if (tile.repeats == 1) return;
  add(r10, static_cast<int>(tile.source_step * sums_.source_pixel_bytes()));
  add(r11, static_cast<int>(tile.pixel_step * sums_.result_pixel_bytes()));
  dec(r13d);
  jnz(repeat, T_NEAR);
}

// What the sums begin with.
void WindowSumsCode::emit_start(const WindowTile& tile) {
  using namespace Xbyak::util;
  for (int64_t c = 0; c < channels_; ++c) {
    const auto first = Xbyak::Ymm(static_cast<int>(c * tile.vectors));
    for (int64_t v = 0; v < tile.vectors; ++v) {
      const auto i = static_cast<size_t>(v);
      const auto sum = Xbyak::Ymm(static_cast<int>(c * tile.vectors + v));
      if (sums_.adds) {
        const int64_t at =
            c * sums_.result_plane_bytes() + tile.pixels[i] * sums_.result_pixel_bytes();
        load(sum, ptr[r11 + static_cast<int>(at)], written(tile)[i]);
      } else if (!sums_.bias) {
        vxorps(sum, sum, sum);
      } else if (v == 0) {
        vbroadcastss(sum, ptr[rdx + static_cast<int>(c * 4)]);
      } else {
        vmovaps(sum, first);
      }
    }
  }
}

void WindowSumsCode::emit_sums(const WindowTile& tile) {
  using namespace Xbyak::util;
  const auto advance = [&](int64_t channels) {
    add(r12, static_cast<int>(channels * sums_.source_plane_bytes()));
    add(r15, static_cast<int>(channels * sums_.source_channel_stride * 4));
  };
  mov(r12, r10);
  mov(r15, rcx);
  Xbyak::Label next_channel, next_kernel_row;
  if (sums_.x.kernel == 1 && sums_.y.kernel == 1) {  // little work: several channels at a time
    constexpr int64_t unroll = 4;
    const int64_t rest = sums_.source_channels % unroll;
    mov(rbp, r12);
    mov(rdi, r15);
    for (int64_t c = 0; c < rest; ++c) emit_taps(tile, c);
    if (rest == sums_.source_channels) return;
    advance(rest);
    mov(eax, static_cast<uint32_t>(sums_.source_channels / unroll));
    L(next_channel);
    mov(rbp, r12);
    mov(rdi, r15);
    for (int64_t c = 0; c < unroll; ++c) emit_taps(tile, c);
    advance(unroll);
    dec(eax);
    jnz(next_channel, T_NEAR);
    return;
  }
  mov(eax, static_cast<uint32_t>(sums_.source_channels));
  L(next_channel);
  mov(rbp, r12);
  mov(rdi, r15);
  mov(ebx, r14d);
  L(next_kernel_row);
  emit_taps(tile, 0);
  const int64_t row_bytes = sums_.x.source * lanes_.pixel_bytes();
  // Backwards, a later kernel row meets an earlier row of the source.
  add(rbp, static_cast<int>(sums_.y.backward ? -row_bytes : row_bytes));
  const int64_t kernel_step = sums_.y.backward ? sums_.y.stride : 1;
  add(rdi, static_cast<int>(kernel_step * sums_.x.kernel * 4));
  dec(ebx);
  jnz(next_kernel_row, T_NEAR);
  advance(1);
  dec(eax);
  jnz(next_channel, T_NEAR);
}

// One row of the kernel. The smaller side is held in registers, the other goes through one.
void WindowSumsCode::emit_taps(const WindowTile& tile, int64_t source_channel) {
  using namespace Xbyak::util;
  const auto sums = static_cast<int>(channels_ * tile.vectors);
  const Xbyak::Ymm passing(registers - 1);
  const auto held = [&](size_t i) { return Xbyak::Ymm(sums + static_cast<int>(i)); };
  for (int64_t k = 0; k < sums_.x.kernel; ++k) {
    std::vector<int64_t> vectors;
    for (int64_t v = 0; v < tile.vectors; ++v) {
      if (tile.met(v, k).lanes != 0) vectors.push_back(v);
    }
    const auto load_image = [&](const Xbyak::Ymm& to, int64_t v) {
      const WindowMeeting& met = tile.met(v, k);
      const int64_t at =
          source_channel * sums_.source_plane_bytes() + met.source * sums_.source_pixel_bytes();
      load(to, ptr[rbp + static_cast<int>(at)], met.lanes);
    };
    const auto weight = [&](int64_t c) {
      const int64_t at =
          source_channel * sums_.source_channel_stride + c * sums_.result_channel_stride + k;
      return ptr[rdi + static_cast<int>(at * 4)];
    };
    const auto sum_of = [&](int64_t c, int64_t v) {
      return Xbyak::Ymm(static_cast<int>(c * tile.vectors + v));
    };
    if (vectors.empty()) continue;
    if (channels_ <= static_cast<int64_t>(vectors.size())) {
      for (int64_t c = 0; c < channels_; ++c) vbroadcastss(held(static_cast<size_t>(c)), weight(c));
      for (const int64_t v : vectors) {
        load_image(passing, v);
        for (int64_t c = 0; c < channels_; ++c) {
          vfmadd231ps(sum_of(c, v), passing, held(static_cast<size_t>(c)));
        }
      }
      continue;
    }
    for (size_t i = 0; i < vectors.size(); ++i) load_image(held(i), vectors[i]);
    for (int64_t c = 0; c < channels_; ++c) {
      vbroadcastss(passing, weight(c));
      for (size_t i = 0; i < vectors.size(); ++i) {
        vfmadd231ps(sum_of(c, vectors[i]), held(i), passing);
      }
    }
  }
}

}  // namespace tessera::cpu
