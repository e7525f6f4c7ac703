#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

class NllLoss : public NeedsAvx2 {};

struct Case {
  Shape shape;
  int64_t reduction, ignored = -100;
  bool weighted = false;

  bool image() const { return shape.size() == 4; }
  Shape target() const {
    Shape target = shape;
    target.erase(target.begin() + (shape.size() == 1 ? 0 : 1));
    return target;
  }
  TrialOperand labels() const {
    const auto classes = static_cast<double>(shape.size() == 1 ? shape[0] : shape[1]);
    return {target(), {}, 0, classes, DType::i32};
  }
  TrialOperand weights() const {
    return {{shape.size() == 1 ? shape[0] : shape[1]}, {}, 0.5, 2, DType::f32, weighted};
  }
  Attrs attrs() const { return {{"reduction", reduction}, {"ignore_index", ignored}}; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t reduction : {0, 1, 2}) {
    all.push_back({{7, 5}, reduction});
    all.push_back({{12, 1000}, reduction, 2, true});
    all.push_back({{9000, 3}, reduction, 1});
    all.push_back({{6}, reduction});
    all.push_back({{2, 3, 9, 13}, reduction, -100, true});
    all.push_back({{1, 4, 3, 3}, reduction, 3});
    all.push_back({{2, 3, 100, 91}, reduction, 0, true});
  }
  return all;
}

TEST_F(NllLoss, AgreesWithTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    OperatorTrial(c.image() ? "nll_loss2d_forward" : "nll_loss_forward",
                  {{c.shape, {}, -6, 0}, c.labels(), c.weights()}, c.attrs())
        .expect_agrees("avx2_nll_loss", 1e-6);
  }
}

TEST_F(NllLoss, GradientsAreThoseOfTheReference) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(tessera::to_string(c.shape));
    const TrialOperand grad{c.reduction == 0 ? c.target() : Shape{}};
    OperatorTrial(c.image() ? "nll_loss2d_backward" : "nll_loss_backward",
                  {grad, {c.shape, {}, -6, 0}, c.labels(), c.weights(), {Shape{}, {}, 3, 9}},
                  c.attrs())
        .expect_agrees("avx2_nll_loss_backward", 0);
  }
}

TEST_F(NllLoss, LabelsOutsideTheClassesAreRefused) {
  for (const Shape& shape : {Shape{7, 5}, Shape{2, 5, 3, 11}}) {
    const Case c{shape, 1};
    OperatorTrial forward(c.image() ? "nll_loss2d_forward" : "nll_loss_forward",
                          {{shape}, c.labels(), c.weights()}, c.attrs());
    forward.integers(1)[3] = 5;
    EXPECT_THROW(forward.result(2), Error);
    OperatorTrial backward(c.image() ? "nll_loss2d_backward" : "nll_loss_backward",
                           {{Shape{}}, {shape}, c.labels(), c.weights(), {Shape{}, {}, 3, 9}},
                           c.attrs());
    backward.integers(2)[3] = -1;
    EXPECT_THROW(backward.result(2), Error);
  }
}

}  // namespace
}  // namespace tessera::cpu
