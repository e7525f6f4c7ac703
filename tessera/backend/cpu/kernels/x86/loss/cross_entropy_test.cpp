#include <gtest/gtest.h>

#include <limits>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

class CrossEntropy : public NeedsAvx2 {};

struct Case {
  Shape shape;
  int64_t reduction, ignored = -100;
  bool weighted = false;

  int64_t classes() const { return shape.size() == 1 ? shape[0] : shape[1]; }
  Shape target() const {
    Shape target = shape;
    target.erase(target.begin() + (shape.size() == 1 ? 0 : 1));
    return target;
  }
  TrialOperand labels() const {
    return {target(), {}, 0, static_cast<double>(classes()), DType::i32};
  }
  TrialOperand weights() const { return {{classes()}, {}, 0.5, 2, DType::f32, weighted}; }
  Attrs attrs() const { return {{"reduction", reduction}, {"ignore_index", ignored}}; }

  OperatorTrial forward() const {
    return {"cross_entropy", {{shape, {}, -9, 9}, labels(), weights()}, attrs()};
  }
  // Without log_sum `self` are log probabilities.
  OperatorTrial backward(bool log_sum) const {
    const TrialOperand scores{shape, {}, log_sum ? -9.0 : -20.0, log_sum ? 9.0 : 0.0};
    const TrialOperand grad{reduction == 0 ? target() : Shape{}};
    const TrialOperand sums{target(), {}, 0, 3, DType::f32, log_sum};
    return {"cross_entropy_backward",
            {grad, scores, labels(), weights(), {Shape{}, {}, 3, 9}, sums},
            attrs()};
  }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t reduction : {0, 1, 2}) {
    all.push_back({{7, 5}, reduction});
    all.push_back({{3, 1}, reduction});
    all.push_back({{1, 10}, reduction, 4});
    all.push_back({{33, 3}, reduction, 1, true});
    all.push_back({{16, 16}, reduction});
    all.push_back({{12, 1000}, reduction, 2, true});
    all.push_back({{5000, 3}, reduction, 1});
    all.push_back({{6}, reduction});
    all.push_back({{2, 3, 9, 13}, reduction, -100, true});
    all.push_back({{1, 1, 3, 3}, reduction});
    all.push_back({{1, 4, 3, 3}, reduction, 3});
    all.push_back({{2, 3, 60, 91}, reduction, 0, true});
    all.push_back({{1, 21, 16, 32}, reduction, 7});
    all.push_back({{3, 10, 5}, reduction});
  }
  return all;
}

TEST_F(CrossEntropy, AgreesWithTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    c.forward().expect_agrees("avx2_cross_entropy", 3e-6);
  }
}

TEST_F(CrossEntropy, GradientsAgreeWithTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    c.backward(true).expect_agrees("avx2_cross_entropy_backward", 1e-6);
    c.backward(false).expect_agrees("avx2_cross_entropy_backward", 1e-6);
  }
}

// Large scores, infinities and NaN, each among harmless neighbours.
TEST_F(CrossEntropy, OddValuesGiveWhatTheReferenceGives) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Shape& shape : {Shape{9, 11}, Shape{2, 3, 5, 7}}) {
    for (const float odd : {1e4F, -1e30F, 3e38F, infinity, -infinity, NAN}) {
      SCOPED_TRACE(tessera::to_string(shape) + " " + std::to_string(odd));
      for (const Case& c : {Case{shape, 0}, Case{shape, 1}, Case{shape, 2, 1}}) {
        auto forward = c.forward();
        forward.values(0)[4] = forward.values(0)[9] = odd;
        forward.expect_agrees("avx2_cross_entropy", 1e-6);
        auto backward = c.backward(true);
        std::copy_n(forward.values(0), numel(shape), backward.values(1));
        const auto log_sums = forward.expected().at(2);
        std::memcpy(backward.values(5), log_sums.data(), log_sums.size());
        backward.expect_agrees("avx2_cross_entropy_backward", 1e-6);
      }
    }
  }
}

TEST_F(CrossEntropy, LabelsOutsideTheClassesAreRefused) {
  for (const Shape& shape : {Shape{7, 5}, Shape{2, 5, 3, 11}}) {
    for (const int32_t label : {5, -1}) {
      const Case c{shape, 1};
      for (const int64_t at : {3, 6}) {
        auto forward = c.forward();
        forward.integers(1)[at] = label;
        EXPECT_THROW(forward.result(2), Error);
        auto backward = c.backward(true);
        backward.integers(2)[at] = label;
        EXPECT_THROW(backward.result(2), Error);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
