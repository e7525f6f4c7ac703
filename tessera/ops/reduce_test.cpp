#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(Reduce, LongSumsStayExact) {
  constexpr int64_t count = 1 << 21;
  const HostTensor tenths = floats({count}, std::vector<float>(count, 0.1F));
  EXPECT_FLOAT_EQ(OpRun("sum", {tenths})[0].elements<float>()[0], 0.1F * count);
  EXPECT_FLOAT_EQ(OpRun("mean", {tenths})[0].elements<float>()[0], 0.1F);
}

TEST(Reduce, SumsOfWholeNumbersAreWide) {
  const HostTensor bytes(DType::u8, {3}, std::vector<uint8_t>{200, 200, 200});
  const auto sum = OpRun("sum", {bytes})[0];
  EXPECT_EQ(sum.type.dtype, DType::i32);
  EXPECT_EQ(sum.elements<int32_t>()[0], 600);
  EXPECT_EQ(OpRun("sum", {bytes}, {{"dtype", DType::f32}})[0].elements<float>()[0], 600);
  EXPECT_THROW(OpRun("mean", {bytes}), Error);
}

TEST(Reduce, FirstOfEqualExtremesAndNanWin) {
  const HostTensor x = floats({3, 4}, {1, 5, 5, 2, nan, 9, nan, 0, -3, -3, -3, -3});
  const auto top = OpRun("max", {x}, {{"dim", int64_t{1}}});
  EXPECT_EQ(top[1].elements<int32_t>(), (std::vector<int32_t>{1, 0, 0}));
  EXPECT_EQ(top[0].elements<float>()[0], 5);
  EXPECT_TRUE(std::isnan(top[0].elements<float>()[1]));
  EXPECT_EQ(OpRun("argmin", {x}, {{"dim", int64_t{1}}})[0].elements<int32_t>(),
            (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(OpRun("argmax", {x})[0].elements<int32_t>()[0], 4) << "over all, in row-major order";
  EXPECT_TRUE(std::isnan(OpRun("amax", {x})[0].elements<float>()[0]));
}

TEST(Reduce, FirstExtremeOfLongRows) {
  std::vector<float> values(200'000, 1);
  values[70'003] = values[150'001] = 2;
  const HostTensor x = floats({200'000}, values);
  EXPECT_EQ(OpRun("argmax", {x})[0].elements<int32_t>()[0], 70'003);
}

TEST(Reduce, VarianceFarFromZero) {
  const HostTensor x = floats({4}, {10000, 10001, 10002, 10003});
  EXPECT_FLOAT_EQ(OpRun("var", {x})[0].elements<float>()[0], 5.0F / 3);
  EXPECT_FLOAT_EQ(OpRun("var", {x}, {{"correction", int64_t{0}}})[0].elements<float>()[0], 1.25F);
  EXPECT_TRUE(std::isnan(OpRun("var", {floats({1}, {3})})[0].elements<float>()[0]));
  const auto both = OpRun("std_mean", {x});
  EXPECT_FLOAT_EQ(both[0].elements<float>()[0], std::sqrt(5.0F / 3));
  EXPECT_FLOAT_EQ(both[1].elements<float>()[0], 10001.5F);
}

TEST(Reduce, LogSumExpNeitherOverflowsNorLosesInfinities) {
  const auto of = [](const std::vector<float>& x) {
    return OpRun("logsumexp", {floats({static_cast<int64_t>(x.size())}, x)}, {{"dim", Ints{0}}})[0]
        .elements<float>()[0];
  };
  EXPECT_FLOAT_EQ(of({1000, 1000}), 1000 + std::log(2.0F));
  EXPECT_EQ(of({-infinity, -infinity}), -infinity);
  EXPECT_EQ(of({1, infinity}), infinity);
  EXPECT_TRUE(std::isnan(of({infinity, nan})));
}

TEST(Reduce, Norms) {
  const HostTensor x = floats({4}, {3, -4, 0, 0});
  const auto norm = [&](double p) {
    return OpRun("norm", {x}, {{"p", p}})[0].elements<float>()[0];
  };
  EXPECT_FLOAT_EQ(norm(2), 5);
  EXPECT_FLOAT_EQ(norm(1), 7);
  EXPECT_FLOAT_EQ(norm(0), 2);
  EXPECT_FLOAT_EQ(norm(static_cast<double>(infinity)), 4);
  EXPECT_FLOAT_EQ(norm(-static_cast<double>(infinity)), 0);
  EXPECT_FLOAT_EQ(norm(3), std::cbrt(27.0F + 64));
}

TEST(Reduce, SkipsNanOnlyWhereAsked) {
  const HostTensor x = floats({3}, {1, nan, 2});
  EXPECT_EQ(OpRun("nansum", {x})[0].elements<float>()[0], 3);
  EXPECT_TRUE(std::isnan(OpRun("sum", {x})[0].elements<float>()[0]));
}

TEST(Reduce, DimensionsAreChecked) {
  const HostTensor x = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_THROW(OpRun("sum", {x}, {{"dim", Ints{2}}}), Error);
  EXPECT_THROW(OpRun("sum", {x}, {{"dim", Ints{0, -2}}}), Error);
  EXPECT_THROW(OpRun("amax", {floats({0}, {})}), Error);
  EXPECT_EQ(OpRun("sum", {floats({0}, {})})[0].elements<float>()[0], 0);
}

}  // namespace
}  // namespace tessera
