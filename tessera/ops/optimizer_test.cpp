#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

HostTensor scalar(float value) { return floats({}, {value}); }

struct Hyper {
  float rate = 0.1F, momentum = 0, dampening = 0, decay = 0;
};

OpRun step(const HostTensor& param, const HostTensor& grad, const HostTensor& velocity,
           const HostTensor& steps, const Hyper& h, bool nesterov = false) {
  return OpRun("sgd",
               {param, grad, velocity, steps, scalar(h.rate), scalar(h.momentum),
                scalar(h.dampening), scalar(h.decay)},
               {{"nesterov", nesterov}});
}

TEST(Sgd, PlainStep) {
  const auto out =
      step(floats({2}, {1, 2}), floats({2}, {10, -10}), left_out(), left_out(), {.rate = 0.5F});
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].elements<float>(), (std::vector<float>{-4, 7}));
}

TEST(Sgd, WeightDecayPullsToZero) {
  const auto out = step(floats({1}, {8}), floats({1}, {0}), left_out(), left_out(),
                        {.rate = 0.5F, .decay = 0.25F});
  EXPECT_EQ(out[0].elements<float>()[0], 7);
}

TEST(Sgd, FirstVelocityIsTheGradientWhateverTheDampening) {
  const Hyper h{.rate = 1, .momentum = 0.5F, .dampening = 0.5F};
  const HostTensor grad = floats({1}, {4});
  const auto first = step(floats({1}, {0}), grad, floats({1}, {99}), ints({}, {0}), h);
  EXPECT_EQ(first[1].elements<float>()[0], 4);
  EXPECT_EQ(first[0].elements<float>()[0], -4);
  const auto second = step(first[0], grad, first[1], ints({}, {1}), h);
  EXPECT_EQ(second[1].elements<float>()[0], 0.5F * 4 + 0.5F * 4);
  EXPECT_EQ(second[0].elements<float>()[0], -8);
}

TEST(Sgd, NesterovLooksAhead) {
  const Hyper h{.rate = 1, .momentum = 0.5F};
  const auto out =
      step(floats({1}, {0}), floats({1}, {4}), floats({1}, {2}), ints({}, {1}), h, true);
  EXPECT_EQ(out[1].elements<float>()[0], 5);
  EXPECT_EQ(out[0].elements<float>()[0], -(4 + 0.5F * 5));
}

TEST(Sgd, ShapesMustAgree) {
  EXPECT_THROW(step(floats({2}, {1, 2}), floats({1}, {1}), left_out(), left_out(), {}), Error);
  EXPECT_THROW(step(floats({1}, {1}), floats({1}, {1}), floats({1}, {1}), left_out(), {}), Error);
}

}  // namespace
}  // namespace tessera
