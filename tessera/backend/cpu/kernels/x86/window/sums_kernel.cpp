#include "tessera/backend/cpu/kernels/x86/window/sums_kernel.h"

#include <algorithm>
#include <numeric>

#include "tessera/backend/cpu/kernels/cut_evenly.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch8.h"

namespace tessera::cpu {
namespace {

// Rows of large images are often a power of two apart: those of more channels than this fall on the
// same places of the caches and drive each other out.
constexpr int64_t most_channels_at_once = 8;
constexpr int64_t large_plane_bytes = 32 << 10;

std::vector<int64_t> chunks_of(const WindowSums& sums) {
  const bool large = sums.lanes.of_a_row && sums.source_plane_bytes() >= large_plane_bytes;
  return cut_evenly(sums.source_channels, large ? most_channels_at_once : sums.source_channels);
}

// So many that the rows of a piece stay in the cache of a core for all blocks of channels.
int64_t cache_pieces(const WindowSums& sums) {
  constexpr int64_t cached_bytes = 256 << 10;
  return sums.source_channels * sums.source_plane_bytes() / cached_bytes;
}

}  // namespace

WindowSumsKernel::WindowSumsKernel(const WindowSums& sums, int64_t images)
    : sums_(sums),
      images_(images),
      blocks_(window_channel_blocks(sums)),
      chunks_(chunks_of(sums)),
      rows_(window_rows(sums)) {
  for (const int64_t channels : blocks_) {
    for (size_t i = 0; i < chunks_.size(); ++i) {
      auto& code = codes_[{channels, chunks_[i], i > 0}];
      if (code) continue;
      WindowSums chunk = sums;
      chunk.source_channels = chunks_[i];
      chunk.adds = i > 0;
      code = std::make_unique<WindowSumsCode>(chunk, channels);
    }
  }
  first_channel_.resize(blocks_.size());
  std::exclusive_scan(blocks_.begin(), blocks_.end(), first_channel_.begin(), int64_t{0});

  const int64_t count = std::ssize(blocks_);
  const int64_t products = sums.multiply_adds();
  block_pieces_ =
      std::clamp<int64_t>(products / least_piece_products, std::min(count, wanted_pieces), count);
  const int64_t wanted = (wanted_pieces + images * block_pieces_ - 1) / (images * block_pieces_);
  const int64_t affordable = products / block_pieces_ / least_piece_products;
  row_pieces_ = std::clamp<int64_t>(std::max(wanted, cache_pieces(sums)), 1,
                                    std::clamp<int64_t>(affordable, 1, sums.y.result));
}

void WindowSumsKernel::run(const KernelCall& call, std::span<std::byte>) const {
  const int64_t floats = sums_.lanes.pixel_bytes() / int64_t{sizeof(float)};
  const int64_t source_size = sums_.source_channels * sums_.y.source * sums_.x.source * floats;
  const int64_t result_size = sums_.result_channels * sums_.y.result * sums_.x.result * floats;
  call.pool.run(images_ * row_pieces_ * block_pieces_, [&](int64_t piece) {
    const int64_t blocks = piece % block_pieces_;
    const int64_t part = piece / block_pieces_ % row_pieces_;
    const int64_t image = piece / block_pieces_ / row_pieces_;
    const int64_t rows = sums_.y.result, count = std::ssize(blocks_);
    const WindowCall whole{call.inputs[0].as<const float>() + image * source_size,
                           call.inputs[1].as<const float>(),
                           sums_.bias ? call.inputs[2].as<const float>() : nullptr,
                           call.outputs[0].as<float>() + image * result_size,
                           rows_.data() + rows * part / row_pieces_,
                           rows_.data() + rows * (part + 1) / row_pieces_};
    for (int64_t block = count * blocks / block_pieces_;
         block < count * (blocks + 1) / block_pieces_; ++block) {
      run_piece(whole, block);
    }
  });
}

void WindowSumsKernel::run_piece(const WindowCall& image, int64_t block) const {
  constexpr int64_t float_bytes = sizeof(float);
  const int64_t channels = blocks_[static_cast<size_t>(block)];
  const int64_t first = first_channel_[static_cast<size_t>(block)];
  WindowCall call = image;
  call.weight += first * sums_.result_channel_stride;
  if (call.bias) call.bias += first;
  call.result += first * sums_.result_plane_bytes() / float_bytes;
  bool adds = false;
  for (const int64_t chunk : chunks_) {
    (*codes_.at({channels, chunk, adds}))(call);
    call.source += chunk * sums_.source_plane_bytes() / float_bytes;
    call.weight += chunk * sums_.source_channel_stride;
    adds = true;
  }
}

}  // namespace tessera::cpu
