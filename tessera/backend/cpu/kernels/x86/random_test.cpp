#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

class Random : public NeedsAvx2 {};

TEST_F(Random, MasksHaveTheBitsOfTheReference) {
  for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{3, 32}, Shape{2, 9000}, Shape{5, 8191}}) {
    for (const double p : {0.0, 0.3, 0.9, 1.0}) {
      SCOPED_TRACE(tessera::to_string(shape));
      const int64_t key = 77 + static_cast<int64_t>(p * 10);
      OperatorTrial("bernoulli", {{shape}}, {{"p", p}, {"key", key}})
          .expect_agrees("avx2_bernoulli", 0);
    }
  }
}

TEST_F(Random, MasksOfGroupedChannelsHaveTheSameValues) {
  for (const Shape& shape : {Shape{2, 8, 2, 2}, Shape{3, 24, 6, 10}, Shape{1, 16, 40, 64}}) {
    SCOPED_TRACE(tessera::to_string(shape));
    OperatorTrial("bernoulli", {{shape, channels_layout}}, {{"p", 0.4}, {"key", int64_t{5}}},
                  {channels_layout})
        .expect_agrees("avx2_bernoulli", 0);
  }
  // A counter would reach into the next channel.
  EXPECT_THROW(OperatorTrial("bernoulli", {{{2, 8, 3, 3}, channels_layout}}, {{"p", 0.4}},
                             {channels_layout}),
               InternalError);
}

// Also where the seed and the counter of steps need more than 32 bits.
TEST_F(Random, MasksDependOnSeedAndStep) {
  const Attrs attrs = completed(op("bernoulli"), {{"p", 0.5}, {"key", int64_t{9}}});
  const KernelOperand x{DType::f32, dense({100})};
  const std::vector<KernelOperand> inputs = {x}, outputs = {x};
  const KernelChoice choice =
      choose_kernel({op("bernoulli"), attrs, inputs, outputs, target_for_test()});
  ThreadPool pool(2, level_for_test());
  const auto drawn = [&](const PreparedKernel& kernel, const RngState& rng) {
    std::vector<float> values(100);
    const std::vector<TensorView> views = {{reinterpret_cast<std::byte*>(values.data()), DType::f32,
                                            x.geometry.shape, x.geometry.strides}};
    kernel.run({.inputs = views, .outputs = views, .attrs = attrs, .pool = pool, .rng = rng}, {});
    return values;
  };
  const KernelChoice reference = reference_kernel(op("bernoulli"));
  const RngState states[] = {{1, 2}, {1, 3}, {uint64_t{1} << 40, (uint64_t{5} << 32) + 2}};
  for (const RngState& rng : states)
    EXPECT_EQ(drawn(*choice.kernel, rng), drawn(*reference.kernel, rng));
  EXPECT_NE(drawn(*choice.kernel, states[0]), drawn(*choice.kernel, states[1]));
}

}  // namespace
}  // namespace tessera::cpu
