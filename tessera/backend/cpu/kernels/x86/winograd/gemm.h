// The products in the middle of Winograd's convolution, as generated code: for every row of A and
// sixteen (or eight) columns of B the sum over k of a[row, k] * b[k, columns]. Rows come in panels
// of at most six, whose sums stay in registers. Many panels are done in one call.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/backend/cpu/kernels/x86/avx2.h"
#include "tessera/backend/cpu/kernels/x86/generated_code.h"

namespace tessera::cpu {

// Where A lies; strides in floats. k runs in groups of `group`, within which it is unrolled.
struct GemmRows {
  int64_t row_stride = 0, k_stride = 0;
  int64_t group = 1, group_stride = 0;
  // From one panel of `rows` rows to the next: a part per row.
  int64_t panel_stride_per_row = 0;
  // Between groups of k where rows of a panel lie side by side: group_stride is per row then.
  bool group_stride_is_per_row = false;
};

class WinogradGemm : private GeneratedCode {
 public:
  static constexpr int64_t most_rows = 6, lanes = avx2::lanes;

  // What the code reads: its layout is known there.
  struct Call {
    const float *a, *b;    // b: [k][vectors][8], dense
    float* c;              // [rows][vectors][8], dense over all panels
    int64_t groups, rest;  // of k: whole groups, and single steps after them
    int64_t stretch;       // groups that have a sum of their own
    int64_t panels;
    int64_t add;  // to what lies in c
  };

  explicit WinogradGemm(const GemmRows& rows);

  // All `rows` rows, cut evenly into as few panels as there can be.
  void run(const float* a, const float* b, float* c, int64_t rows, int64_t vectors, int64_t k,
           bool add) const;

 private:
  using Function = void (*)(const Call*);

  Function generate(int rows, int vectors);

  GemmRows rows_;
  std::array<std::array<Function, 3>, most_rows + 1> functions_{};  // [rows][vectors]
};

// How rows are cut: the first `larger` panels have one row more than the others.
struct Panels {
  int64_t count, rows, larger;

  explicit Panels(int64_t all)
      : count((all + WinogradGemm::most_rows - 1) / WinogradGemm::most_rows),
        rows(all / count),
        larger(all % count) {}
};

}  // namespace tessera::cpu
