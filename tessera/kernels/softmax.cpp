#include "tessera/kernels/softmax.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/base/divided_up.h"
#include "tessera/base/scratch.h"
#include "tessera/kernels/operand_reader.h"

namespace tessera {
namespace {

constexpr int64_t piece_elements = 4096;  // exponentials are dear: smaller pieces than a copy's
constexpr int64_t tile_columns = 64;      // neighbours in `inner` that are worked on together

// [outer, size, inner] around the dimension, and one tile of it: `columns` neighbours in `inner`.
struct Layout {
  int64_t outer = 1, size = 1, inner = 1;

  Layout(std::span<const int64_t> shape, int64_t dim) {
    for (size_t i = 0; i < shape.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      (at < dim ? outer : at == dim ? size : inner) *= shape[i];
    }
  }
};
struct Tile {
  int64_t begin;  // of its first element in the dense tensor
  int64_t size, columns, row_stride;
};

// Copies a tile into dense [size, columns].
void load(const OperandReader& reader, const Tile& tile, float* to) {
  alignas(64) std::byte scratch[OperandReader::scratch_bytes];
  const auto copy = [&](int64_t from, int64_t count) {
    const auto* in = reader.read_as<float>(from, count, scratch);
    to = std::copy_n(in, count, to);
  };
  if (tile.row_stride == 1) {
    for (int64_t d = 0; d < tile.size; d += OperandReader::block) {
      copy(tile.begin + d, std::min(OperandReader::block, tile.size - d));
    }
  } else {
    for (int64_t d = 0; d < tile.size; ++d) copy(tile.begin + d * tile.row_stride, tile.columns);
  }
}

template <typename Work>
void for_each_tile(ThreadPool& pool, const Layout& layout, const Work& work) {
  const int64_t columns = std::min(layout.inner, tile_columns);
  const int64_t tiles_across = divided_up(layout.inner, columns);
  const int64_t grain =
      std::max<int64_t>(1, piece_elements / std::max<int64_t>(1, layout.size * columns));
  pool.run_ranges(layout.outer * tiles_across, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t first = at % tiles_across * columns;
      work(Tile{at / tiles_across * layout.size * layout.inner + first, layout.size,
                std::min(columns, layout.inner - first), layout.inner});
    }
  });
}

using Columns = std::array<float, tile_columns>;
using Sums = std::array<double, tile_columns>;

// Calls visit(element of the tile, its column, its place in the dense result).
template <typename Visit>
void for_each_element(const Tile& tile, const Visit& visit) {
  for (int64_t d = 0; d < tile.size; ++d) {
    for (int64_t k = 0; k < tile.columns; ++k) {
      visit(static_cast<size_t>(d * tile.columns + k), static_cast<size_t>(k),
            tile.begin + d * tile.row_stride + k);
    }
  }
}

Columns column_maxima(const Tile& tile, const ScratchVector<float>& x) {
  Columns maxima;
  maxima.fill(-std::numeric_limits<float>::infinity());
  for_each_element(tile, [&](size_t i, size_t k, int64_t) {
    if (!(x[i] <= maxima[k])) maxima[k] = x[i];  // a NaN stays, and makes the column NaN
  });
  return maxima;
}

}  // namespace

void softmax(ThreadPool& pool, const TensorView& input, int64_t dim, const TensorView& out) {
  const Layout layout(out.sizes, dim);
  expect_elements_of<float>(input.dtype);
  const OperandReader reader(input, out.sizes);
  auto* result = out.as<float>();
  for_each_tile(pool, layout, [&](const Tile& tile) {
    ScratchVector<float> x(static_cast<size_t>(tile.size * tile.columns));
    load(reader, tile, x.data());
    const Columns maxima = column_maxima(tile, x);
    Sums sums{};
    for_each_element(tile, [&](size_t i, size_t k, int64_t) {
      x[i] = std::exp(x[i] - maxima[k]);
      sums[k] += x[i];
    });
    for_each_element(tile, [&](size_t i, size_t k, int64_t at) {
      result[at] = x[i] / static_cast<float>(sums[k]);
    });
  });
}

void log_softmax(ThreadPool& pool, const TensorView& input, int64_t dim, const TensorView& out) {
  const Layout layout(out.sizes, dim);
  expect_elements_of<float>(input.dtype);
  const OperandReader reader(input, out.sizes);
  auto* result = out.as<float>();
  for_each_tile(pool, layout, [&](const Tile& tile) {
    ScratchVector<float> x(static_cast<size_t>(tile.size * tile.columns));
    load(reader, tile, x.data());
    const Columns maxima = column_maxima(tile, x);
    Sums sums{};
    for_each_element(tile, [&](size_t i, size_t k, int64_t) {
      sums[k] += static_cast<double>(std::exp(x[i] - maxima[k]));
    });
    Columns logs;
    for (size_t k = 0; k < static_cast<size_t>(tile.columns); ++k) {
      logs[k] = static_cast<float>(std::log(sums[k]));
    }
    for_each_element(
        tile, [&](size_t i, size_t k, int64_t at) { result[at] = x[i] - maxima[k] - logs[k]; });
  });
}

void softmax_backward(ThreadPool& pool, const TensorView& grad, const TensorView& forward,
                      int64_t dim, const TensorView& out) {
  const Layout layout(out.sizes, dim);
  expect_elements_of<float>(grad.dtype);
  expect_elements_of<float>(forward.dtype);
  const OperandReader grads(grad, out.sizes);
  const OperandReader results(forward, out.sizes);
  auto* result = out.as<float>();
  for_each_tile(pool, layout, [&](const Tile& tile) {
    ScratchVector<float> g(static_cast<size_t>(tile.size * tile.columns));
    ScratchVector<float> y(g.size());
    load(grads, tile, g.data());
    load(results, tile, y.data());
    Sums sums{};
    for_each_element(tile, [&](size_t i, size_t k, int64_t) {
      sums[k] += static_cast<double>(g[i]) * static_cast<double>(y[i]);
    });
    for_each_element(tile, [&](size_t i, size_t k, int64_t at) {
      result[at] = (g[i] - static_cast<float>(sums[k])) * y[i];
    });
  });
}

void log_softmax_backward(ThreadPool& pool, const TensorView& grad, const TensorView& forward,
                          int64_t dim, const TensorView& out) {
  const Layout layout(out.sizes, dim);
  expect_elements_of<float>(grad.dtype);
  expect_elements_of<float>(forward.dtype);
  const OperandReader grads(grad, out.sizes);
  const OperandReader results(forward, out.sizes);
  auto* result = out.as<float>();
  for_each_tile(pool, layout, [&](const Tile& tile) {
    ScratchVector<float> g(static_cast<size_t>(tile.size * tile.columns));
    ScratchVector<float> y(g.size());
    load(grads, tile, g.data());
    load(results, tile, y.data());
    Sums sums{};
    for_each_element(tile,
                     [&](size_t i, size_t k, int64_t) { sums[k] += static_cast<double>(g[i]); });
    for_each_element(tile, [&](size_t i, size_t k, int64_t at) {
      result[at] = g[i] - std::exp(y[i]) * static_cast<float>(sums[k]);
    });
  });
}

}  // namespace tessera
