// Sums in halves against the rule written out: one sum, one product after the other.
#include "tessera/kernels/partials.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "tessera/kernels/conv.h"
#include "tessera/kernels/gemm.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

using Floats = TestTensor<float>;
using Runs = std::vector<std::vector<float>>;  // the products of one sum

constexpr Partials nearest{.half = true};
constexpr Partials by_chance{
    .half = true, .by_chance = true, .rng = {.seed = 5, .step = 6}, .key = 7};

// The sum of that number.
float sum_of(const Runs& runs, const Partials& partials, int64_t number) {
  float total = 0, partial = 0;
  int64_t block = 0;
  const auto end_stretch = [&] {
    total = block <= 64 ? partial : total + partial;
    partial = 0;
  };
  for (const auto& run : runs) {
    for (size_t k = 0; k < run.size(); k += 16) {
      float sum = 0;
      for (size_t i = k; i < std::min(k + 16, run.size()); ++i) sum += run[i];
      const auto words = random_words(partials.rng, partials.key, static_cast<uint64_t>(block) + 1);
      const uint32_t word = rounding_word({words[0], words[1]}, static_cast<uint32_t>(number));
      const Half half = partials.by_chance ? to_half(partial + sum, word) : to_half(partial + sum);
      partial = to_float(half);
      if (++block % 64 == 0) end_stretch();
    }
  }
  if (block % 64 != 0) end_stretch();
  return total;
}

// Halves; a few of them are far from the others.
Floats random_halves(Shape shape, uint32_t seed) {
  Floats tensor(std::move(shape));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : tensor.values) {
    const float scale = random() % 16 == 0 ? 32.0F : random() % 8 == 0 ? 0x1p-12F : 1.0F;
    value = rounded_to_half(normal(random) * scale);
  }
  return tensor;
}

std::vector<ThreadPool*> pools() {
  static ThreadPool one(1, CpuLevel::portable), three(3, CpuLevel::portable);
  static ThreadPool fast(1), fast_three(3);
  return {&one, &three, &fast, &fast_three};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs it both ways, at all levels and with several threads.
void expect_sums(const Shape& shape,
                 const std::function<float(const Partials&, int64_t place)>& expected,
                 const std::function<void(const Partials&, const TensorView&, ThreadPool&)>& run) {
  for (const Partials& partials : {nearest, by_chance}) {
    Floats wanted(shape);
    for (size_t i = 0; i < wanted.values.size(); ++i) {
      wanted.values[i] = expected(partials, static_cast<int64_t>(i));
    }
    for (ThreadPool* pool : pools()) {
      Floats out(shape);
      run(partials, out.view(), *pool);
      EXPECT_TRUE(same_bits(out.values, wanted.values))
          << to_string(shape) << ", " << name_of(pool->level())
          << (partials.by_chance ? ", by chance" : "");
    }
  }
}

// ---- Products

void expect_product(Floats& a, Floats& b) {
  const TensorView left = a.view(), right = b.view();
  const size_t r = left.sizes.size() - 2;
  const int64_t rows = left.sizes[r], depth = left.sizes[r + 1], cols = right.sizes[r + 1];
  Shape shape = {rows, cols};
  if (r == 1) shape.insert(shape.begin(), left.sizes[0]);
  const auto expected = [&](const Partials& partials, int64_t place) {
    const int64_t batch = place / (rows * cols), i = place / cols % rows, j = place % cols;
    Runs runs(1);
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t x = i * left.strides[r] + k * left.strides[r + 1];
      const int64_t y = k * right.strides[r] + j * right.strides[r + 1];
      runs[0].push_back(a.values[static_cast<size_t>(x + (r ? batch * left.strides[0] : 0))] *
                        b.values[static_cast<size_t>(y + (r ? batch * right.strides[0] : 0))]);
    }
    return sum_of(runs, partials, place);
  };
  expect_sums(shape, expected,
              [&](const Partials& partials, const TensorView& out, ThreadPool& pool) {
                matmul(left, right, out, pool, partials);
              });
}

TEST(Partials, OfProducts) {
  for (const Shape& size : {Shape{1, 1, 1},
                            {3, 16, 5},
                            {7, 17, 18},
                            {6, 256, 16},
                            {13, 300, 33},
                            {98, 40, 390},
                            {4, 1024, 3},
                            {4, 1025, 3},
                            {2, 3000, 2}}) {
    Floats a = random_halves({size[0], size[1]}, 1), b = random_halves({size[1], size[2]}, 2);
    expect_product(a, b);
  }
}

TEST(Partials, OfBatchesOfTransposedMatrices) {
  Floats values = random_halves({3 * 40 * 30}, 3);
  Floats a({3, 30, 40}, {1200, 1, 30}, values.values);
  Floats b = random_halves({3, 40, 7}, 4);
  expect_product(a, b);
}

TEST(Partials, OfNothingAreZero) {
  for (ThreadPool* pool : pools()) {
    Floats a({2, 0}), b({0, 3}), out({2, 3}, std::vector<float>(6, 9));
    matmul(a.view(), b.view(), out.view(), *pool, nearest);
    EXPECT_EQ(out.values, std::vector<float>(6, 0));
  }
}

// 1 is lost beside 4096, where halves are 4 apart; in floats it would not be.
TEST(Partials, AreHalves) {
  for (ThreadPool* pool : pools()) {
    Floats a({1, 32}, std::vector<float>(32, 0)), b({32, 1}, std::vector<float>(32, 1)),
        out({1, 1});
    a.values[0] = 4096;
    a.values[16] = 1;
    matmul(a.view(), b.view(), out.view(), *pool, nearest);
    EXPECT_EQ(out.values[0], 4096);
    matmul(a.view(), b.view(), out.view(), *pool);
    EXPECT_EQ(out.values[0], 4097);
  }
}

TEST(Partials, OverflowAsHalvesDo) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (ThreadPool* pool : pools()) {
    for (const Partials& partials : {nearest, by_chance}) {
      Floats a({2, 32}, std::vector<float>(64, 0)), b({32, 1}, std::vector<float>(32, 1));
      Floats out({2, 1});
      a.values[0] = 65504;
      a.values[16] = 65504;
      a.values[31] = -65504;
      a.values[32] = 65504;
      a.values[33] = 65504;
      a.values[48] = -65504;
      matmul(a.view(), b.view(), out.view(), *pool, partials);
      // Within a block there is room: 0 is added to the first.
      EXPECT_EQ(out.values, (std::vector<float>{65504, infinity}));
    }
  }
}

TEST(Partials, KeepWhatIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (ThreadPool* pool : pools()) {
    for (const Partials& partials : {nearest, by_chance}) {
      Floats a({1, 20}, std::vector<float>(20, 1)), b({20, 2}, std::vector<float>(40, 1));
      Floats out({1, 2});
      b.values[0] = infinity;
      b.values[1] = std::numeric_limits<float>::quiet_NaN();
      matmul(a.view(), b.view(), out.view(), *pool, partials);
      EXPECT_EQ(out.values[0], infinity);
      EXPECT_TRUE(std::isnan(out.values[1]));
    }
  }
}

// Tiny sums go up as often as they should, and so does their mean.
TEST(Partials, AreRightInTheMeanByChance) {
  constexpr int64_t cols = 4000;
  Floats a({1, 64}, std::vector<float>(64, 0)), b({64, cols}, std::vector<float>(64 * cols, 1));
  a.values[0] = 1;
  for (const size_t k : {16, 32, 48}) a.values[k] = 0x1p-12F;  // a quarter of the gap
  for (ThreadPool* pool : pools()) {
    Floats out({1, cols});
    matmul(a.view(), b.view(), out.view(), *pool, by_chance);
    double mean = 0;
    for (const float value : out.values) mean += (value - 1) / cols;
    EXPECT_NEAR(mean, 3 * 0x1p-12, 0x1p-12 * 0.1);
    matmul(a.view(), b.view(), out.view(), *pool, nearest);
    EXPECT_EQ(out.values, std::vector<float>(cols, 1));
  }
}

// ---- Convolutions

struct Case {
  Shape input, weight;
  ConvParams params;
};

std::vector<Case> cases() {
  return {
      {{2, 20, 11}, {4, 20, 3}, {{2}, {1}, {1}, 1}},
      {{2, 3, 9, 8}, {5, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {{2, 36, 9, 8}, {38, 18, 3, 2}, {{2, 3}, {2, 0}, {2, 1}, 2}},
      {{1, 20, 7, 7}, {20, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 20}},
      {{3, 17, 4, 4}, {130, 17, 1, 1}, {{1, 1}, {0, 0}, {1, 1}, 1}},
      {{1, 2, 5, 6, 7}, {3, 2, 2, 3, 2}, {{1, 2, 1}, {1, 0, 1}, {2, 1, 2}, 1}},
      // More than one stretch of blocks; of places, in one part, in several, and in several by
      // turns.
      {{1, 130, 3, 3}, {2, 130, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {{1, 2, 35, 35}, {3, 2, 1, 1}, {{1, 1}, {0, 0}, {1, 1}, 1}},
      {{2, 1, 40, 40}, {2, 1, 2, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {{1, 10, 71, 71}, {10, 1, 1, 1}, {{1, 1}, {0, 0}, {1, 1}, 10}},
  };
}

Shape places_of(const Case& c) {
  Shape shape{c.input[0], c.weight[0]};
  for (size_t d = 2; d < c.input.size(); ++d) {
    shape.push_back(conv_output_size(c.input[d], c.weight[d], c.params.stride[d - 2],
                                     c.params.padding[d - 2], c.params.dilation[d - 2]));
  }
  return shape;
}

Shape field_of(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Shape index_of(int64_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return index;
}

int64_t flat_of(const Shape& index, const Shape& shape) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

float at(const Floats& tensor, int64_t image, int64_t channel, int64_t position) {
  const Shape shape = tensor.type().shape;
  const int64_t size = numel(field_of(shape));
  return tensor.values[static_cast<size_t>((image * shape[1] + channel) * size + position)];
}

// Where in the input an element of the kernel lies that stands at a place; -1 for outside.
int64_t met(const Case& c, int64_t element, int64_t place) {
  const Shape k = index_of(element, field_of(c.weight));
  Shape i = index_of(place, field_of(places_of(c)));
  for (size_t d = 0; d < i.size(); ++d) {
    i[d] = i[d] * c.params.stride[d] - c.params.padding[d] + k[d] * c.params.dilation[d];
    if (i[d] < 0 || i[d] >= c.input[2 + d]) return -1;
  }
  return flat_of(i, field_of(c.input));
}

// Convolutions count their sums by group, channel, image and position.
int64_t number_of(const Shape& shape, int64_t groups, int64_t place) {
  const int64_t size = numel(field_of(shape)), per_group = shape[1] / groups;
  const int64_t image = place / size / shape[1], channel = place / size % shape[1];
  const int64_t group = channel / per_group, cols = shape[0] * size;
  return (group * per_group + channel % per_group) * cols + image * size + place % size;
}

TEST(Partials, OfConvolutions) {
  for (const Case& c : cases()) {
    Floats x = random_halves(c.input, 1), w = random_halves(c.weight, 2);
    Floats bias = random_halves({c.weight[0]}, 3);
    const Shape shape = places_of(c);
    const int64_t size = numel(field_of(shape)), in = c.weight[1];
    const auto expected = [&](const Partials& partials, int64_t place) {
      const int64_t image = place / size / shape[1], channel = place / size % shape[1];
      const int64_t group = channel / (shape[1] / c.params.groups);
      Runs runs;
      for (int64_t element = 0; element < numel(field_of(c.weight)); ++element) {
        const int64_t from = met(c, element, place % size);
        runs.emplace_back();
        for (int64_t i = 0; i < in; ++i) {
          const float value = from < 0 ? 0.0F : at(x, image, group * in + i, from);
          runs.back().push_back(value * at(w, channel, i, element));
        }
      }
      return sum_of(runs, partials, number_of(shape, c.params.groups, place)) +
             bias.values[static_cast<size_t>(channel)];
    };
    expect_sums(shape, expected,
                [&](const Partials& partials, const TensorView& out, ThreadPool& pool) {
                  conv(x.view(), w.view(), bias.view(), c.params, out, pool, partials);
                });
  }
}

TEST(Partials, OfGradientsByTheInput) {
  for (const Case& c : cases()) {
    const Shape places = places_of(c);
    Floats g = random_halves(places, 1), w = random_halves(c.weight, 2);
    const int64_t size = numel(field_of(c.input)), count = numel(field_of(places));
    const int64_t in = c.weight[1], out_channels = places[1] / c.params.groups;
    const int64_t elements = numel(field_of(c.weight));
    std::vector<int64_t> sources(static_cast<size_t>(elements * size), -1);  // places, by position
    for (int64_t element = 0; element < elements; ++element) {
      for (int64_t place = 0; place < count; ++place) {
        const int64_t at = met(c, element, place);
        if (at >= 0) sources[static_cast<size_t>(element * size + at)] = place;
      }
    }
    const auto expected = [&](const Partials& partials, int64_t place) {
      const int64_t image = place / size / c.input[1], channel = place / size % c.input[1];
      const int64_t group = channel / in;
      Runs runs;
      for (int64_t element = 0; element < elements; ++element) {
        const int64_t from = sources[static_cast<size_t>(element * size + place % size)];
        runs.emplace_back();
        for (int64_t o = group * out_channels; o < (group + 1) * out_channels; ++o) {
          const float value = from < 0 ? 0.0F : at(g, image, o, from);
          runs.back().push_back(value * at(w, o, channel % in, element));
        }
      }
      return sum_of(runs, partials, number_of(c.input, c.params.groups, place));
    };
    expect_sums(c.input, expected,
                [&](const Partials& partials, const TensorView& out, ThreadPool& pool) {
                  conv_input_grad(g.view(), w.view(), c.params, out, pool, partials);
                });
  }
}

TEST(Partials, OfGradientsByTheWeight) {
  for (const Case& c : cases()) {
    const Shape places = places_of(c);
    Floats g = random_halves(places, 1), x = random_halves(c.input, 2);
    const int64_t size = numel(field_of(c.weight)), count = numel(field_of(places));
    const int64_t in = c.weight[1], out_channels = places[1] / c.params.groups;
    const auto expected = [&](const Partials& partials, int64_t place) {
      const int64_t out = place / size / in, channel = out / out_channels * in + place / size % in;
      Runs runs(1);
      for (int64_t image = 0; image < c.input[0]; ++image) {
        for (int64_t p = 0; p < count; ++p) {
          const int64_t from = met(c, place % size, p);
          const float value = from < 0 ? 0.0F : at(x, image, channel, from);
          runs[0].push_back(at(g, image, out, p) * value);
        }
      }
      return sum_of(runs, partials, place);
    };
    expect_sums(c.weight, expected,
                [&](const Partials& partials, const TensorView& out, ThreadPool& pool) {
                  conv_weight_grad(g.view(), x.view(), c.params, out, pool, partials);
                });
  }
}

}  // namespace
}  // namespace tessera::kernels
