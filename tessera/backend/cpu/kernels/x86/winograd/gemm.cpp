#include "tessera/backend/cpu/kernels/x86/winograd/gemm.h"

#include <cstddef>

namespace tessera::cpu {
namespace {

// How many products are added up one after the other before their sum is added to c. The error of a
// sum grows with its length. In stretches it does not, as it does in a direct convolution, whose
// sums are nine times as long. Longer stretches cost less, and many channels can afford them.
constexpr int64_t stretch(int64_t k) { return k <= 128 ? 32 : 64; }

}  // namespace

WinogradGemm::WinogradGemm(const GemmRows& rows) : rows_(rows) {
  for (int vectors = 1; vectors <= 2; ++vectors) {
    for (int count = 1; count <= most_rows; ++count) {
      functions_[static_cast<size_t>(count)][static_cast<size_t>(vectors)] =
          generate(count, vectors);
    }
  }
  finish();
}

void WinogradGemm::run(const float* a, const float* b, float* c, int64_t rows, int64_t vectors,
                       int64_t k, bool add) const {
  const Panels panels(rows);
  const int64_t larger_rows = panels.larger * (panels.rows + 1);
  Call call{a,  b, c, k / rows_.group, k % rows_.group, stretch(k) / rows_.group, panels.larger,
            add};
  const auto function = [&](int64_t count) {
    return functions_[static_cast<size_t>(count)][static_cast<size_t>(vectors)];
  };
  if (panels.larger > 0) function(panels.rows + 1)(&call);
  call.a += larger_rows * rows_.panel_stride_per_row;
  call.c += larger_rows * vectors * lanes;
  call.panels = panels.count - panels.larger;
  function(panels.rows)(&call);
}

WinogradGemm::Function WinogradGemm::generate(int rows, int vectors) {
  using namespace Xbyak;
  constexpr int64_t bytes = sizeof(float);
  const int64_t vector_bytes = lanes * bytes;
  const int64_t row_bytes = vectors * vector_bytes;
  const int64_t group_bytes =
      rows_.group_stride * bytes * (rows_.group_stride_is_per_row ? rows : 1);
  const auto disp = [](int64_t offset) { return static_cast<size_t>(offset); };
  const auto imm = [](int64_t value) { return static_cast<uint32_t>(value); };
  const Reg64 &call = rdi, &a = rax, &b = rdx, &left = rcx, &panel = r8, &c = r10, &panels = r11;
  const Reg64 &groups = rsi, &add_to_c = r9;
  const auto sum = [&](int row, int vector) { return Ymm(row * vectors + vector); };
  const auto field = [&](size_t offset) { return qword[call + offset]; };

  align(32);
  const auto function = reinterpret_cast<Function>(const_cast<uint8_t*>(getCurr()));
  const auto step = [&](int64_t k) {
    for (int v = 0; v < vectors; ++v) {
      vmovups(Ymm(12 + v), yword[b + disp(k * row_bytes + v * vector_bytes)]);
    }
    for (int row = 0; row < rows; ++row) {
      const Ymm value(14 + row % 2);
      vbroadcastss(value, dword[a + disp((row * rows_.row_stride + k * rows_.k_stride) * bytes)]);
      for (int v = 0; v < vectors; ++v) vfmadd231ps(sum(row, v), value, Ymm(12 + v));
    }
  };

  mov(panel, field(offsetof(Call, a)));
  mov(c, field(offsetof(Call, c)));
  mov(panels, field(offsetof(Call, panels)));
  const auto clear_sums = [&] {
    for (int i = 0; i < rows * vectors; ++i) vxorps(Ymm(i), Ymm(i), Ymm(i));
  };
  const auto add_or_store = [&] {
    Label store;
    test(add_to_c, add_to_c);
    jz(store, T_NEAR);
    for (int i = 0; i < rows * vectors; ++i) {
      vaddps(Ymm(i), Ymm(i), yword[c + disp(i * vector_bytes)]);
    }
    L(store);
    for (int i = 0; i < rows * vectors; ++i) vmovups(yword[c + disp(i * vector_bytes)], Ymm(i));
  };
  Label next_panel, next_stretch, next_group, rest, next_rest, done;
  L(next_panel);
  mov(a, panel);
  mov(b, field(offsetof(Call, b)));
  mov(add_to_c, field(offsetof(Call, add)));
  clear_sums();
  mov(groups, field(offsetof(Call, groups)));
  test(groups, groups);
  jz(rest, T_NEAR);
  L(next_stretch);
  mov(left, field(offsetof(Call, stretch)));
  cmp(groups, left);
  cmovl(left, groups);
  sub(groups, left);
  L(next_group);
  for (int64_t k = 0; k < rows_.group; ++k) step(k);
  add(a, imm(group_bytes));
  add(b, imm(rows_.group * row_bytes));
  dec(left);
  jnz(next_group, T_NEAR);
  test(groups, groups);
  jz(rest, T_NEAR);
  add_or_store();
  clear_sums();
  mov(add_to_c, 1);
  jmp(next_stretch, T_NEAR);
  L(rest);
  mov(left, field(offsetof(Call, rest)));
  test(left, left);
  jz(done, T_NEAR);
  L(next_rest);
  step(0);
  add(a, imm(rows_.k_stride * bytes));
  add(b, imm(row_bytes));
  dec(left);
  jnz(next_rest, T_NEAR);
  L(done);
  add_or_store();
  add(panel, imm(rows_.panel_stride_per_row * rows * bytes));
  add(c, imm(rows * row_bytes));
  dec(panels);
  jnz(next_panel, T_NEAR);
  vzeroupper();
  ret();
  return function;
}

}  // namespace tessera::cpu
