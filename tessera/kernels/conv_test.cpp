#include "tessera/kernels/conv.h"

#include <gtest/gtest.h>

#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

struct Case {
  Shape input, weight;
  ConvParams params;
};

std::vector<Case> cases() {
  return {
      {{2, 3, 11}, {4, 3, 3}, {{2}, {1}, {1}, 1}},
      {{2, 3, 9, 8}, {5, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
      {{2, 6, 9, 8}, {4, 3, 3, 2}, {{2, 3}, {2, 0}, {2, 1}, 2}},
      {{1, 20, 7, 7}, {20, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 20}},
      {{3, 17, 4, 4}, {130, 17, 1, 1}, {{1, 1}, {0, 0}, {1, 1}, 1}},
      {{1, 2, 5, 6, 7}, {3, 2, 2, 3, 2}, {{1, 2, 1}, {1, 0, 1}, {2, 1, 2}, 1}},
      // Enough positions for the weight gradient to be summed in parts.
      {{2, 1, 60, 60}, {2, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
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

// Index of a flat row-major position along one dimension.
int64_t index_along(int64_t flat, const Shape& shape, size_t d) {
  return flat / contiguous_strides(shape)[d] % shape[d];
}

// Straight from the definition: every output, every weight of its filter.
std::vector<float> convolve(const Case& c, const std::vector<float>& x,
                            const std::vector<float>& w) {
  const Shape places = places_of(c);
  const Strides strides = contiguous_strides(c.input);
  const int64_t filter = numel(c.weight) / c.weight[0];
  std::vector<float> out;
  for (int64_t o = 0; o < numel(places); ++o) {
    const int64_t channel = index_along(o, places, 1);
    const int64_t group = channel / (c.weight[0] / c.params.groups);
    float sum = 0;
    for (int64_t k = channel * filter; k < (channel + 1) * filter; ++k) {
      int64_t at = index_along(o, places, 0) * strides[0] +
                   (group * c.weight[1] + index_along(k, c.weight, 1)) * strides[1];
      bool inside = true;
      for (size_t d = 2; d < places.size(); ++d) {
        const int64_t i = index_along(o, places, d) * c.params.stride[d - 2] -
                          c.params.padding[d - 2] +
                          index_along(k, c.weight, d) * c.params.dilation[d - 2];
        inside &= i >= 0 && i < c.input[d];
        at += i * strides[d];
      }
      if (inside) sum += x[static_cast<size_t>(at)] * w[static_cast<size_t>(k)];
    }
    out.push_back(sum);
  }
  return out;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Conv, FollowsItsDefinition) {
  for (const Case& c : cases()) {
    auto x = TestTensor<float>::pattern(c.input);
    auto w = TestTensor<float>::pattern(c.weight, 11);
    TestTensor<float> out(places_of(c));
    ThreadPool pool(2);
    conv(x.view(), w.view(), no_tensor(), c.params, out.view(), pool);
    EXPECT_EQ(out.values, convolve(c, x.values, w.values)) << to_string(c.input);
  }
}

TEST(Conv, AddsTheBiasOfItsChannel) {
  TestTensor<float> x({1, 1, 2}, {1, 2}), w({2, 1, 1}, {1, 10}), bias({2}, {100, 200});
  TestTensor<float> out({1, 2, 2});
  ThreadPool pool(1);
  conv(x.view(), w.view(), bias.view(), {{1}, {0}, {1}, 1}, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{101, 102, 210, 220}));
}

// conv is linear in both operands, which fixes its gradients: <conv(x, w), g> = <x, dx> = <w, dw>.
TEST(Conv, GradientsAreAdjoint) {
  for (const Case& c : cases()) {
    auto g = TestTensor<float>::pattern(places_of(c), 7);
    auto w = TestTensor<float>::pattern(c.weight, 11);
    auto x = TestTensor<float>::pattern(c.input);
    const double expected = dot(convolve(c, x.values, w.values), g.values);
    TestTensor<float> dx(c.input), dw(c.weight);
    ThreadPool pool(2);
    conv_input_grad(g.view(), w.view(), c.params, dx.view(), pool);
    conv_weight_grad(g.view(), x.view(), c.params, dw.view(), pool);
    EXPECT_EQ(dot(x.values, dx.values), expected) << to_string(c.input);
    EXPECT_EQ(dot(w.values, dw.values), expected) << to_string(c.input);
  }
}

}  // namespace
}  // namespace tessera::kernels
