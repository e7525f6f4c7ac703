#include "tessera/backend/cpu/kernels/x86/gemm/code.h"

#include <algorithm>

#include "tessera/base/divided_up.h"

namespace tessera::cpu {
namespace {

using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;

constexpr int64_t lanes_per_vector = 8;
constexpr int held = static_cast<int>(tile_accumulators);  // operands that serve several products
constexpr int passing = 15;

// The arguments of a TileFunction, then what the loops move.
const Reg64& a_begin = Xbyak::util::rdi;
const Reg64& b_begin = Xbyak::util::rsi;
const Reg64& out = Xbyak::util::rdx;
const Reg64& bias = Xbyak::util::rcx;
const Reg64& count = Xbyak::util::r8;
const Reg64& a = Xbyak::util::rax;
const Reg64& b = Xbyak::util::r10;
const Reg64& steps_left = Xbyak::util::r11;
const Reg64& mask_table = Xbyak::util::r9;

int displacement(int64_t elements) {
  return static_cast<int>(elements * static_cast<int64_t>(sizeof(float)));
}

Ymm vector(int64_t index) { return Ymm(static_cast<int>(index)); }

int64_t vectors_of(const PanelTile& tile) { return divided_up(tile.columns, lanes_per_vector); }

// Of a tile's vector that may be the last and not whole.
int64_t lanes_of(int64_t columns, int64_t index) {
  return std::min(lanes_per_vector, columns - index * lanes_per_vector);
}

}  // namespace

// Masks lie behind the code: eight times all ones, then eight zeros.
void GemmCode::seal() {
  align(32);
  L(masks_);
  for (int i = 0; i < 16; ++i) dd(i < 8 ? 0xffffffffU : 0U);
  finish();
}

// The mask's register may be the target: no register is lost to it.
void GemmCode::load(const Ymm& to, const Xbyak::Address& from, int64_t lanes) {
  if (lanes >= lanes_per_vector) return vmovups(to, from);
  vmovups(to, ptr[mask_table + displacement(lanes_per_vector - lanes)]);
  vmaskmovps(to, to, from);
}

// In two or three moves where the vector is not whole: masked stores are slow on some CPUs.
void GemmCode::store(const Xbyak::Address& to, const Reg64& base, int64_t offset, int index,
                     int64_t lanes) {
  const Xmm low(index);
  if (lanes >= lanes_per_vector) return vmovups(to, Ymm(index));
  if (lanes >= 4) {
    vmovups(ptr[base + displacement(offset)], low);
    vextractf128(low, Ymm(index), 1);
    offset += 4;
    lanes -= 4;
  }
  if (lanes >= 2) {
    vmovlps(ptr[base + displacement(offset)], low);
    vmovhlps(low, low, low);
    offset += 2;
    lanes -= 2;
  }
  if (lanes == 1) vmovss(ptr[base + displacement(offset)], low);
}

template <typename Step>
void GemmCode::depth_loop(int64_t steps, int64_t unroll, int64_t a_bytes, int64_t b_bytes,
                          Step step) {
  int64_t rest = steps;
  if (steps >= 2 * unroll) {
    Xbyak::Label again;
    mov(steps_left, steps / unroll);
    L(again);
    for (int64_t k = 0; k < unroll; ++k) step(k);
    add(a, static_cast<uint32_t>(unroll * a_bytes));
    add(b, static_cast<uint32_t>(unroll * b_bytes));
    dec(steps_left);
    jnz(again, T_NEAR);
    rest = steps % unroll;
  }
  for (int64_t k = 0; k < rest; ++k) step(k);
}

// ---- Panels

// What serves more products is held: the row's elements where there are fewer of them.
void GemmCode::panel_step(const PanelTile& tile, int64_t k) {
  const int64_t vectors = vectors_of(tile);
  const auto element = [&](int64_t row) {
    return ptr[a + displacement(row * tile.a_row + k * tile.a_depth)];
  };
  const auto columns = [&](int64_t v) {
    return ptr[b + displacement(k * tile.b_depth + v * lanes_per_vector)];
  };
  const auto lanes = [&](int64_t v) {
    return tile.b_padded ? lanes_per_vector : lanes_of(tile.columns, v);
  };
  if (tile.rows < vectors) {
    for (int64_t i = 0; i < tile.rows; ++i) vbroadcastss(vector(held + i), element(i));
    for (int64_t v = 0; v < vectors; ++v) {
      if (tile.rows == 1 && lanes(v) == lanes_per_vector) {
        vfmadd231ps(vector(v), vector(held), columns(v));
        continue;
      }
      load(vector(passing), columns(v), lanes(v));
      for (int64_t i = 0; i < tile.rows; ++i)
        vfmadd231ps(vector(i * vectors + v), vector(held + i), vector(passing));
    }
    return;
  }
  for (int64_t v = 0; v < vectors; ++v) load(vector(held + v), columns(v), lanes(v));
  for (int64_t i = 0; i < tile.rows; ++i) {
    vbroadcastss(vector(passing), element(i));
    for (int64_t v = 0; v < vectors; ++v)
      vfmadd231ps(vector(i * vectors + v), vector(passing), vector(held + v));
  }
}

void GemmCode::panel_end(const PanelTile& tile) {
  const int64_t vectors = vectors_of(tile);
  const auto place = [&](int64_t i, int64_t v) { return i * tile.out_row + v * lanes_per_vector; };
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t lanes = lanes_of(tile.columns, v);
    if (tile.ends.bias) {
      load(vector(held), ptr[bias + displacement(v * lanes_per_vector)], lanes);
    }
    if (tile.ends.relu) vxorps(vector(held + 1), vector(held + 1), vector(held + 1));
    for (int64_t i = 0; i < tile.rows; ++i) {
      const Ymm sum = vector(i * vectors + v);
      const auto to = ptr[out + displacement(place(i, v))];
      if (tile.ends.accumulate) {
        load(vector(passing), to, lanes);
        vaddps(sum, sum, vector(passing));
      }
      if (tile.ends.bias) vaddps(sum, sum, vector(held));
      // In this order a NaN stays one.
      if (tile.ends.relu) vmaxps(sum, vector(held + 1), sum);
      store(to, out, place(i, v), sum.getIdx(), lanes);
    }
  }
}

size_t GemmCode::panel(const PanelTile& tile) {
  align(32);
  const size_t begin = getSize();
  const int64_t vectors = vectors_of(tile);
  Xbyak::Label next_tile;
  lea(mask_table, ptr[rip + masks_]);
  L(next_tile);
  mov(a, a_begin);
  mov(b, b_begin);
  for (int64_t i = 0; i < tile.rows * vectors; ++i) vxorps(vector(i), vector(i), vector(i));
  depth_loop(tile.depth, 4, tile.a_depth * 4, tile.b_depth * 4,
             [&](int64_t k) { panel_step(tile, k); });
  panel_end(tile);
  add(a_begin, displacement(tile.next_a));
  add(out, displacement(tile.rows * tile.out_row));
  dec(count);
  jnz(next_tile, T_NEAR);
  vzeroupper();
  ret();
  return begin;
}

// ---- Dots

void GemmCode::dot_step(const DotTile& tile, int64_t k, int64_t lanes) {
  const auto of_row = [&](int64_t i) {
    return ptr[a + displacement(i * tile.a_row + k * lanes_per_vector)];
  };
  const auto of_column = [&](int64_t j) {
    return ptr[b + displacement(j * tile.b_column + k * lanes_per_vector)];
  };
  const bool hold_rows = tile.rows < tile.columns;
  const int64_t holding = hold_rows ? tile.rows : tile.columns;
  const int64_t others = hold_rows ? tile.columns : tile.rows;
  for (int64_t h = 0; h < holding; ++h)
    load(vector(held + h), hold_rows ? of_row(h) : of_column(h), lanes);
  for (int64_t o = 0; o < others; ++o) {
    const auto from = hold_rows ? of_column(o) : of_row(o);
    const auto sum = [&](int64_t h) {
      return vector(hold_rows ? h * tile.columns + o : o * tile.columns + h);
    };
    if (holding == 1 && lanes == lanes_per_vector) {
      vfmadd231ps(sum(0), vector(held), from);
      continue;
    }
    load(vector(passing), from, lanes);
    for (int64_t h = 0; h < holding; ++h) vfmadd231ps(sum(h), vector(passing), vector(held + h));
  }
}

// Sums of four vectors' lanes at a time become the four lanes of one.
void GemmCode::dot_end(const DotTile& tile) {
  if (tile.ends.relu) vxorps(Xmm(held), Xmm(held), Xmm(held));
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.columns; j += 4) {
      const int64_t lanes = std::min<int64_t>(4, tile.columns - j);
      const auto sum = [&](int64_t lane) {
        return vector(i * tile.columns + j + std::min(lane, lanes - 1));
      };
      vhaddps(sum(0), sum(0), sum(1));
      if (lanes > 2) vhaddps(sum(2), sum(2), sum(3));
      vhaddps(sum(0), sum(0), lanes > 2 ? sum(2) : sum(0));
      const Xmm low(sum(0).getIdx()), high(passing);
      vextractf128(high, sum(0), 1);
      vaddps(low, low, high);
      const int64_t place = i * tile.out_row + j;
      const auto to = ptr[out + displacement(place)];
      if (tile.ends.accumulate) {
        load(vector(passing), to, lanes);
        vaddps(low, low, high);
      }
      if (tile.ends.bias) {
        load(vector(passing), ptr[bias + displacement(j)], lanes);
        vaddps(low, low, high);
      }
      if (tile.ends.relu) vmaxps(low, Xmm(held), low);
      store(to, out, place, low.getIdx(), lanes);
    }
  }
}

size_t GemmCode::dot(const DotTile& tile) {
  align(32);
  const size_t begin = getSize();
  Xbyak::Label next_tile;
  lea(mask_table, ptr[rip + masks_]);
  L(next_tile);
  mov(a, a_begin);
  mov(b, b_begin);
  for (int64_t i = 0; i < tile.rows * tile.columns; ++i) vxorps(vector(i), vector(i), vector(i));
  const int64_t whole = tile.depth / lanes_per_vector, rest = tile.depth % lanes_per_vector;
  constexpr int64_t unroll = 4;
  depth_loop(whole, unroll, 32, 32, [&](int64_t k) { dot_step(tile, k, lanes_per_vector); });
  // After the loop the pointers stand at the first step that was not taken by whole rounds.
  if (rest > 0) dot_step(tile, whole >= 2 * unroll ? whole % unroll : whole, rest);
  dot_end(tile);
  add(b_begin, displacement(tile.columns * tile.b_column));
  add(out, displacement(tile.columns));
  if (tile.ends.bias) add(bias, displacement(tile.columns));
  dec(count);
  jnz(next_tile, T_NEAR);
  vzeroupper();
  ret();
  return begin;
}

}  // namespace tessera::cpu
