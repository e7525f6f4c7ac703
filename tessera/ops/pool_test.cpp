#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
const HostTensor x = floats({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});

TEST(MaxPool, StepsByItsKernelWhereNoStrideIsGiven) {
  const OpRun run("max_pool2d_with_indices", {x}, {{"kernel_size", Ints{2}}, {"stride", Ints{}}});
  EXPECT_EQ(run[0].type.shape, (Shape{1, 1, 2}));
  EXPECT_EQ(run[0].elements<float>(), (Floats{6, 8}));
  EXPECT_EQ(run[1].elements<int32_t>(), (std::vector<int32_t>{5, 7}));
  EXPECT_EQ(infer(op("max_pool2d_with_indices"), std::vector{std::optional(x.type)},
                  completed(op("max_pool2d_with_indices"), {{"kernel_size", Ints{2, 2}}}))[1]
                .dtype,
            DType::i64);
}

TEST(Pooling, SaysWhatDoesNotFit) {
  EXPECT_THROW(OpRun("avg_pool2d", {x}, {{"kernel_size", Ints{3, 3}}}), Error);
  EXPECT_THROW(OpRun("avg_pool2d", {x}, {{"kernel_size", Ints{2, 2}}, {"padding", Ints{2}}}),
               Error);
  EXPECT_THROW(
      OpRun("avg_pool2d", {x}, {{"kernel_size", Ints{2, 2}}, {"divisor_override", int64_t{0}}}),
      Error);
}

}  // namespace
}  // namespace tessera
