// A kernel of sums over windows: see window_sums_code.h. Operands are the images, the weight and a
// bias where there is one.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tessera/backend/cpu/kernels/prepared_kernel.h"
#include "tessera/backend/cpu/kernels/x86/window/sums_code.h"

namespace tessera::cpu {

class WindowSumsKernel : public PreparedKernel {
 public:
  // `images`: groups of eight where they share vectors.
  WindowSumsKernel(const WindowSums& sums, int64_t images);
  void run(const KernelCall& call, std::span<std::byte> workspace) const override;

 private:
  using CodeKey = std::tuple<int64_t, int64_t, bool>;  // result channels, source channels, adds

  void run_piece(const WindowCall& image, int64_t block) const;

  WindowSums sums_;
  int64_t images_;
  std::vector<int64_t> blocks_, first_channel_;  // of the result's channels
  std::vector<int64_t> chunks_;                  // of the source's channels
  std::vector<WindowRow> rows_;
  std::map<CodeKey, std::unique_ptr<WindowSumsCode>> codes_;
  int64_t row_pieces_ = 1, block_pieces_ = 1;
};

}  // namespace tessera::cpu
