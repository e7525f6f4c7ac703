#include <gtest/gtest.h>

#include <limits>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
const HostTensor a = floats({1, 2}, {1, 2});
const HostTensor b = floats({2, 1}, {3, 4});

TEST(Addmm, ScalesOnlyWhereItMust) {
  const auto self = floats({1}, {10});
  const OpRun plain("addmm", {self, a, b});
  EXPECT_EQ(plain[0].elements<float>(), Floats{21});
  EXPECT_EQ(plain.ran(), (std::vector<std::string>{"matmul", "add"}));
  const OpRun scaled("addmm", {self, a, b}, {{"beta", 2.0}, {"alpha", -1.0}});
  EXPECT_EQ(scaled[0].elements<float>(), Floats{9});
}

TEST(Addmm, DoesNotLookAtSelfWhenBetaIsZero) {
  const auto self = floats({1}, {std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(OpRun("addmm", {self, a, b}, {{"beta", 0.0}})[0].elements<float>(), Floats{11});
}

TEST(Matmul, SaysWhatDoesNotFit) {
  EXPECT_THROW(OpRun("matmul", {a, a}), Error);
  EXPECT_THROW(OpRun("matmul", {a, ints({2, 1}, {3, 4})}), Error);
  EXPECT_THROW(OpRun("matmul", {floats({2}, {1, 2}), b}), Error);
}

TEST(Trilinear, SumsOnlyOverDimensionsThatThereAre) {
  const std::vector<int64_t> none;
  for (const int64_t dim : {int64_t{-1}, int64_t{2}, int64_t{2147483647}}) {
    const Attrs attrs = {{"expand1", none},
                         {"expand2", none},
                         {"expand3", none},
                         {"sumdim", std::vector<int64_t>{dim}}};
    EXPECT_THROW(OpRun("trilinear", {a, a, a}, attrs), Error) << dim;
  }
}

}  // namespace
}  // namespace tessera
