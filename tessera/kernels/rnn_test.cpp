#include "tessera/kernels/rnn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/kernels/test_tensor.h"
#include "tessera/kernels/vector_math.h"

namespace tessera::kernels {
namespace {

using Floats = TestTensor<float>;

TEST(VectorMath, FollowsTheStandardFunctions) {
  for (float x = -30; x < 30; x += 0.0137F) {
    const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(sigmoid_of(x), sigmoid, 3e-7 * sigmoid) << x;
    const double tanh = std::tanh(static_cast<double>(x));
    EXPECT_NEAR(tanh_of(x), tanh, 3e-7 * std::abs(tanh)) << x;
  }
  for (float x = -80; x < 80; x += 0.0171F) {
    const double exp = std::exp(static_cast<double>(x));
    EXPECT_NEAR(exp_of(x), exp, 3e-7 * exp) << x;
    EXPECT_NEAR(log_of(static_cast<float>(exp)), x, 3e-7 * std::max(1.0F, std::abs(x))) << x;
  }
  for (const float x : {1e-6F, -3e-9F, 1e-30F}) EXPECT_FLOAT_EQ(tanh_of(x), x);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tanh_of(infinity), 1);
  EXPECT_EQ(tanh_of(-infinity), -1);
  EXPECT_EQ(tanh_of(0), 0);
  EXPECT_EQ(sigmoid_of(infinity), 1);
  EXPECT_LT(sigmoid_of(-infinity), 1e-37F);
  EXPECT_TRUE(std::isnan(sigmoid_of(std::nanf(""))));
  EXPECT_TRUE(std::isnan(tanh_of(std::nanf(""))));
  EXPECT_TRUE(std::isnan(log_of(exp_of(std::nanf("")))));
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What a gate adds up for one element, in double precision.
double gate(const Floats& projected, const Floats& weight, const Floats& bias, size_t place,
            size_t unit, const std::vector<double>& h) {
  const size_t n = h.size(), width = bias.values.size();
  double sum = projected.values[place * width + unit] + bias.values[unit];
  for (size_t k = 0; k < n; ++k) sum += weight.values[unit * n + k] * h[k];
  return sum;
}

// Eight rows are more than a piece of work, eleven units more than a vector.
struct Layer {
  int64_t time = 5, batch = 8, hidden = 11, gates;
  Floats projected, h0, c0, weight, bias, output, hn, cn, cells, saved;

  explicit Layer(int64_t gate_count)
      : gates(gate_count),
        projected(Floats::pattern({time, batch, gates * hidden})),
        h0(Floats::pattern({batch, hidden}, 7)),
        c0(Floats::pattern({batch, hidden}, 11)),
        weight(Floats::pattern({gates * hidden, hidden}, 5)),
        bias(Floats::pattern({gates * hidden}, 3)),
        output({time, batch, hidden}),
        hn({batch, hidden}),
        cn({batch, hidden}),
        cells({time, batch, hidden}),
        saved({time, batch, 4 * hidden}) {}
};

TEST(Lstm, FollowsItsEquationsInBothDirections) {
  ThreadPool pool(2);
  for (const bool reverse : {false, true}) {
    Layer x(4);
    lstm({.projected = x.projected.view(),
          .h0 = x.h0.view(),
          .c0 = x.c0.view(),
          .weight = x.weight.view(),
          .bias_ih = x.bias.view(),
          .bias_hh = no_tensor(),
          .reverse = reverse,
          .output = x.output.view(),
          .hn = x.hn.view(),
          .cn = x.cn.view(),
          .cells = x.cells.view(),
          .gates = x.saved.view()},
         pool);
    const auto n = static_cast<size_t>(x.hidden);
    for (size_t row = 0; row < 8; ++row) {
      std::vector<double> h(x.h0.values.begin() + static_cast<int64_t>(row * n),
                            x.h0.values.begin() + static_cast<int64_t>((row + 1) * n));
      std::vector<double> c(x.c0.values.begin() + static_cast<int64_t>(row * n),
                            x.c0.values.begin() + static_cast<int64_t>((row + 1) * n));
      for (size_t step = 0; step < 5; ++step) {
        const size_t place = (reverse ? 4 - step : step) * 8 + row;
        const std::vector<double> before = h;
        for (size_t j = 0; j < n; ++j) {
          const auto of = [&](size_t k) {
            return gate(x.projected, x.weight, x.bias, place, k * n + j, before);
          };
          c[j] = sigmoid(of(1)) * c[j] + sigmoid(of(0)) * std::tanh(of(2));
          h[j] = sigmoid(of(3)) * std::tanh(c[j]);
          ASSERT_NEAR(x.output.values[place * n + j], h[j], 2e-6);
          ASSERT_NEAR(x.cells.values[place * n + j], c[j], 2e-6);
        }
      }
      for (size_t j = 0; j < n; ++j) {
        EXPECT_NEAR(x.hn.values[row * n + j], h[j], 2e-6);
        EXPECT_NEAR(x.cn.values[row * n + j], c[j], 2e-6);
      }
    }
  }
}

// The loss is the sum of everything that goes out; differences of it must be the gradients.
double lstm_loss(Layer& x, bool reverse, ThreadPool& pool) {
  lstm({.projected = x.projected.view(),
        .h0 = x.h0.view(),
        .c0 = x.c0.view(),
        .weight = x.weight.view(),
        .bias_ih = no_tensor(),
        .bias_hh = no_tensor(),
        .reverse = reverse,
        .output = x.output.view(),
        .hn = x.hn.view(),
        .cn = x.cn.view(),
        .cells = x.cells.view(),
        .gates = x.saved.view()},
       pool);
  double sum = 0;
  for (const Floats* part : {&x.output, &x.hn, &x.cn}) {
    for (const float value : part->values) sum += value;
  }
  return sum;
}

double gru_loss(Layer& x, bool reverse, ThreadPool& pool) {
  gru({.projected = x.projected.view(),
       .h0 = x.h0.view(),
       .weight = x.weight.view(),
       .bias_ih = no_tensor(),
       .bias_hh = x.bias.view(),
       .reverse = reverse,
       .output = x.output.view(),
       .hn = x.hn.view(),
       .gates = x.saved.view()},
      pool);
  double sum = 0;
  for (const Floats* part : {&x.output, &x.hn}) {
    for (const float value : part->values) sum += value;
  }
  return sum;
}

template <typename Loss>
void expect_slopes(Layer& x, Floats& of, const Floats& gradient, const Loss& loss) {
  constexpr float step = 1.0F / 128;
  for (size_t i = 0; i < of.values.size(); i += 7) {
    const float before = of.values[i];
    of.values[i] = before + step;
    const double more = loss(x);
    of.values[i] = before - step;
    const double slope = (more - loss(x)) / (2 * step);
    of.values[i] = before;
    EXPECT_NEAR(gradient.values[i], slope, 3e-3 + 3e-3 * std::abs(slope)) << i;
  }
}

TEST(LstmBackward, IsTheSlopeOfTheLoss) {
  ThreadPool pool(2);
  for (const bool reverse : {false, true}) {
    Layer x(4);
    for (float& value : x.weight.values) value *= 0.25F;
    const auto loss = [&](Layer& layer) { return lstm_loss(layer, reverse, pool); };
    loss(x);
    Floats ones({5, 8, 11}, std::vector<float>(5 * 8 * 11, 1));
    Floats ones_of_state({8, 11}, std::vector<float>(8 * 11, 1));
    Floats grad_projected({5, 8, 44}), grad_h0({8, 11}), grad_c0({8, 11});
    lstm_backward({.grad_output = ones.view(),
                   .grad_hn = ones_of_state.view(),
                   .grad_cn = ones_of_state.view(),
                   .c0 = x.c0.view(),
                   .weight = x.weight.view(),
                   .cells = x.cells.view(),
                   .gates = x.saved.view(),
                   .reverse = reverse,
                   .grad_projected = grad_projected.view(),
                   .grad_h0 = grad_h0.view(),
                   .grad_c0 = grad_c0.view()},
                  pool);
    expect_slopes(x, x.projected, grad_projected, loss);
    expect_slopes(x, x.h0, grad_h0, loss);
    expect_slopes(x, x.c0, grad_c0, loss);
  }
}

TEST(GruBackward, IsTheSlopeOfTheLoss) {
  ThreadPool pool(2);
  for (const bool reverse : {false, true}) {
    Layer x(3);
    for (float& value : x.weight.values) value *= 0.25F;
    const auto loss = [&](Layer& layer) { return gru_loss(layer, reverse, pool); };
    loss(x);
    Floats ones({5, 8, 11}, std::vector<float>(5 * 8 * 11, 1));
    Floats ones_of_state({8, 11}, std::vector<float>(8 * 11, 1));
    Floats grad_projected({5, 8, 33}), grad_hidden({5, 8, 33}), grad_h0({8, 11});
    gru_backward({.grad_output = ones.view(),
                  .grad_hn = ones_of_state.view(),
                  .h0 = x.h0.view(),
                  .weight = x.weight.view(),
                  .output = x.output.view(),
                  .gates = x.saved.view(),
                  .reverse = reverse,
                  .grad_projected = grad_projected.view(),
                  .grad_hidden = grad_hidden.view(),
                  .grad_h0 = grad_h0.view()},
                 pool);
    expect_slopes(x, x.projected, grad_projected, loss);
    expect_slopes(x, x.h0, grad_h0, loss);
    Floats grad_bias({33});
    for (size_t i = 0; i < grad_hidden.values.size(); ++i) {
      grad_bias.values[i % 33] += grad_hidden.values[i];
    }
    expect_slopes(x, x.bias, grad_bias, loss);
  }
}

TEST(Rnn, ReluKeepsWhatIsPositive) {
  ThreadPool pool(1);
  Floats projected({2, 1, 2}, {1, -1, 2, 3}), h0({1, 2}, {1, 1}), weight({2, 2}, {1, 0, 0, -1});
  Floats output({2, 1, 2}), hn({1, 2});
  rnn({.projected = projected.view(),
       .h0 = h0.view(),
       .weight = weight.view(),
       .bias_ih = no_tensor(),
       .bias_hh = no_tensor(),
       .relu = true,
       .output = output.view(),
       .hn = hn.view()},
      pool);
  EXPECT_EQ(output.values, (std::vector<float>{2, 0, 4, 3}));
  EXPECT_EQ(hn.values, (std::vector<float>{4, 3}));

  Floats ones({2, 1, 2}, {1, 1, 1, 1}), grad({2, 1, 2}), grad_h0({1, 2});
  rnn_backward({.grad_output = ones.view(),
                .grad_hn = no_tensor(),
                .weight = weight.view(),
                .output = output.view(),
                .relu = true,
                .grad_projected = grad.view(),
                .grad_h0 = grad_h0.view()},
               pool);
  EXPECT_EQ(grad.values, (std::vector<float>{2, 0, 1, 1}));
  EXPECT_EQ(grad_h0.values, (std::vector<float>{2, 0}));
}

}  // namespace
}  // namespace tessera::kernels
