#include "tessera/kernels/patches.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/copy.h"

namespace tessera::kernels {
namespace {

// Calls visit(position in the plane's columns, position in the plane) for every element of every
// patch that lies inside the image; position in the plane is -1 for padding.
template <typename Visit>
void for_each_element(const PatchParams& p, std::array<int64_t, 2> image, const Visit& visit) {
  const auto windows = p.windows(image);
  int64_t column = 0;
  for (int64_t i = 0; i < p.kernel[0]; ++i) {
    for (int64_t j = 0; j < p.kernel[1]; ++j) {
      for (int64_t y = 0; y < windows[0]; ++y) {
        const int64_t h = y * p.stride[0] - p.padding[0] + i * p.dilation[0];
        const bool row_inside = h >= 0 && h < image[0];
        for (int64_t x = 0; x < windows[1]; ++x, ++column) {
          const int64_t w = x * p.stride[1] - p.padding[1] + j * p.dilation[1];
          visit(column, row_inside && w >= 0 && w < image[1] ? h * image[1] + w : -1);
        }
      }
    }
  }
}

std::array<int64_t, 2> image_size(const TensorView& images) {
  const size_t rank = images.sizes.size();
  return {images.sizes[rank - 2], images.sizes[rank - 1]};
}

// Calls work(plane) for every channel of every image.
template <typename Work>
void for_each_plane(const TensorView& images, const TensorView& columns, ThreadPool& pool,
                    const Work& work) {
  const auto image = image_size(images);
  const int64_t planes = numel(images.sizes.first(images.sizes.size() - 2));
  if (planes == 0) return;
  const int64_t per_plane = std::max<int64_t>(1, columns.numel() / planes);
  pool.run_ranges(planes, std::max<int64_t>(1, 16384 / per_plane), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) work(plane, per_plane, image[0] * image[1]);
  });
}

}  // namespace

std::array<int64_t, 2> PatchParams::windows(std::array<int64_t, 2> image) const {
  std::array<int64_t, 2> out;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t room = image[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    out[d] = room < 0 ? 0 : room / stride[d] + 1;
  }
  return out;
}

void images_to_columns(const TensorView& images, const PatchParams& params,
                       const TensorView& columns, ThreadPool& pool) {
  if (columns.numel() == 0) return;
  const Dense source(images, pool);
  for_each_plane(images, columns, pool, [&](int64_t plane, int64_t per_plane, int64_t area) {
    const float* from = source.as<float>() + plane * area;
    float* to = columns.as<float>() + plane * per_plane;
    for_each_element(params, image_size(images),
                     [&](int64_t column, int64_t at) { to[column] = at < 0 ? 0.0F : from[at]; });
  });
}

void columns_to_images(const TensorView& columns, const PatchParams& params,
                       const TensorView& images, ThreadPool& pool) {
  if (images.numel() == 0) return;
  const Dense source(columns, pool);
  for_each_plane(images, columns, pool, [&](int64_t plane, int64_t per_plane, int64_t area) {
    const float* from = source.as<float>() + plane * per_plane;
    float* to = images.as<float>() + plane * area;
    std::fill(to, to + area, 0.0F);
    for_each_element(params, image_size(images), [&](int64_t column, int64_t at) {
      if (at >= 0) to[at] += from[column];
    });
  });
}

void add_windows(const TensorView& grad, int64_t dim, int64_t step, const TensorView& out,
                 ThreadPool& pool) {
  fill(0, out, pool);
  if (out.numel() == 0 || grad.numel() == 0) return;
  const Dense source(grad, pool);
  const int64_t size = grad.sizes.back();
  const bool scalar = out.sizes.empty();
  const auto d = static_cast<size_t>(dim);
  const int64_t length = scalar ? 1 : out.sizes[d];
  const int64_t inner = scalar ? 1 : numel(out.sizes.subspan(d + 1));
  const int64_t windows = scalar ? 1 : grad.sizes[d];
  const int64_t lines = out.numel() / length;
  pool.run_ranges(lines, std::max<int64_t>(1, 16384 / (windows * size)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t line = begin; line < end; ++line) {
                      float* to = out.as<float>() + line / inner * length * inner + line % inner;
                      for (int64_t w = 0; w < windows; ++w) {
                        const int64_t row = (line / inner * windows + w) * inner + line % inner;
                        const float* from = source.as<float>() + row * size;
                        for (int64_t k = 0; k < size; ++k) to[(w * step + k) * inner] += from[k];
                      }
                    }
                  });
}

}  // namespace tessera::kernels
