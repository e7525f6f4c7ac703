#include "tessera/kernels/ctc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

using Floats = TestTensor<float>;
using Ints = TestTensor<int32_t>;

constexpr int64_t classes = 3;

// The probability of all alignments by trying every one of them.
double by_trying_all(const Floats& log_probs, int64_t time, const std::vector<int32_t>& labels) {
  double sum = 0;
  std::vector<int32_t> path;
  const std::function<void(double)> extend = [&](double log_prob) {
    const auto t = static_cast<int64_t>(path.size());
    if (t == time) {
      std::vector<int32_t> said;
      for (size_t i = 0; i < path.size(); ++i) {
        if (path[i] != 0 && (i == 0 || path[i] != path[i - 1])) said.push_back(path[i]);
      }
      if (said == labels) sum += std::exp(log_prob);
      return;
    }
    for (int32_t c = 0; c < classes; ++c) {
      path.push_back(c);
      extend(log_prob +
             static_cast<double>(log_probs.values[static_cast<size_t>(t * classes + c)]));
      path.pop_back();
    }
  };
  extend(0);
  return -std::log(sum);
}

Floats some_log_probs(int64_t time, int64_t batch) {
  Floats log_probs = Floats::pattern({time, batch, classes}, 7);
  for (size_t row = 0; row < log_probs.values.size(); row += classes) {
    float sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(log_probs.values[row + c]);
    for (size_t c = 0; c < classes; ++c) log_probs.values[row + c] -= std::log(sum);
  }
  return log_probs;
}

struct Case {
  Floats log_probs;
  Ints targets, input_lengths, target_lengths;
  bool zero_infinity = false;

  Ctc ctc() {
    return {.log_probs = log_probs.view(),
            .targets = targets.view(),
            .input_lengths = input_lengths.view(),
            .target_lengths = target_lengths.view(),
            .blank = 0,
            .zero_infinity = zero_infinity};
  }
  std::vector<float> loss() {
    ThreadPool pool(2);
    Floats out({log_probs.view().sizes[1]});
    ctc_loss(ctc(), out.view(), pool);
    return out.values;
  }
  std::vector<float> gradient(std::vector<float> factors) {
    ThreadPool pool(2);
    Floats out(Shape(log_probs.view().sizes.begin(), log_probs.view().sizes.end()));
    Floats grad({log_probs.view().sizes[1]}, std::move(factors));
    ctc_loss_backward(ctc(), grad.view(), out.view(), pool);
    return out.values;
  }
};

TEST(Ctc, SumsOverAllAlignments) {
  for (const auto& labels : {std::vector<int32_t>{}, {1}, {1, 2}, {2, 2}, {1, 2, 1}}) {
    const auto count = static_cast<int64_t>(labels.size());
    Case one{some_log_probs(5, 1), Ints({count}, labels), Ints({1}, {5}),
             Ints({1}, {static_cast<int32_t>(count)})};
    EXPECT_NEAR(one.loss()[0], by_trying_all(one.log_probs, 5, labels), 1e-5);
  }
}

TEST(Ctc, LabelsMayBePaddedOrInOneRow) {
  const Floats log_probs = some_log_probs(6, 2);
  const Ints input_lengths({2}, {6, 4}), target_lengths({2}, {2, 1});
  Case padded{log_probs, Ints({2, 3}, {1, 2, 99, 2, 99, 99}), input_lengths, target_lengths};
  Case in_one_row{log_probs, Ints({3}, {1, 2, 2}), input_lengths, target_lengths};
  EXPECT_EQ(padded.loss(), in_one_row.loss());
  EXPECT_EQ(padded.gradient({1, 2}), in_one_row.gradient({1, 2}));
  const auto gradient = padded.gradient({1, 2});
  for (size_t i = 4 * 6 + 3; i < 5 * 6; ++i) EXPECT_EQ(gradient[i], 0) << "after the second's end";
}

// The slope along log_softmax: a change of one input moves all log-probabilities of its step.
TEST(Ctc, GradientIsTheSlopeOfTheInputOfLogSoftmax) {
  Case one{some_log_probs(5, 1), Ints({3}, {1, 1, 2}), Ints({1}, {5}), Ints({1}, {3})};
  const auto gradient = one.gradient({0.5F});
  const Floats original = one.log_probs;
  for (size_t t = 0; t < 5; ++t) {
    for (size_t c = 0; c < classes; ++c) {
      const auto moved = [&](double step) {
        one.log_probs = original;
        double sum = 0;
        for (size_t k = 0; k < classes; ++k) {
          sum += std::exp(original.values[t * classes + k] + (k == c ? step : 0));
        }
        for (size_t k = 0; k < classes; ++k) {
          one.log_probs.values[t * classes + k] +=
              static_cast<float>((k == c ? step : 0) - std::log(sum));
        }
        return static_cast<double>(one.loss()[0]);
      };
      const double slope = (moved(0.01) - moved(-0.01)) / 0.02;
      EXPECT_NEAR(gradient[t * classes + c], 0.5 * slope, 1e-3);
    }
  }
}

TEST(Ctc, TooShortIsInfiniteOrZero) {
  Case one{some_log_probs(2, 1), Ints({2}, {1, 1}), Ints({1}, {2}), Ints({1}, {2})};
  EXPECT_TRUE(std::isinf(one.loss()[0]));
  EXPECT_TRUE(std::isnan(one.gradient({1})[0]));
  one.zero_infinity = true;
  EXPECT_EQ(one.loss()[0], 0);
  EXPECT_EQ(one.gradient({1}), std::vector<float>(6, 0));
}

TEST(Ctc, NanComesThrough) {
  Case one{some_log_probs(6, 1), Ints({2}, {1, 2}), Ints({1}, {6}), Ints({1}, {2})};
  one.log_probs.values[2 * classes + 1] = std::nanf("");
  EXPECT_TRUE(std::isnan(one.loss()[0]));
}

TEST(Ctc, RefusesLengthsAndLabelsOutOfRange) {
  Case one{some_log_probs(3, 1), Ints({2}, {1, 2}), Ints({1}, {4}), Ints({1}, {2})};
  EXPECT_THROW(one.loss(), Error);
  one.input_lengths.values = {3};
  one.target_lengths.values = {3};
  EXPECT_THROW(one.loss(), Error);
  one.target_lengths.values = {2};
  one.targets.values = {1, 3};
  EXPECT_THROW(one.loss(), Error);
  one.targets.values = {1, 2};
  EXPECT_NO_THROW(one.loss());
}

}  // namespace
}  // namespace tessera::kernels
