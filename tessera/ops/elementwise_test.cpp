#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int32_t lowest = std::numeric_limits<int32_t>::min();

std::vector<float> float_result(std::string_view name, std::vector<HostTensor> operands,
                                Attrs attrs = {}) {
  return OpRun(name, std::move(operands), std::move(attrs))[0].elements<float>();
}
std::vector<int32_t> int_result(std::string_view name, std::vector<HostTensor> operands,
                                Attrs attrs = {}) {
  return OpRun(name, std::move(operands), std::move(attrs))[0].elements<int32_t>();
}

TEST(Elementwise, NanWinsComparisons) {
  const HostTensor a = floats({4}, {nan, 1, 2, -infinity});
  const HostTensor b = floats({4}, {1, nan, 1, 0});
  const auto larger = float_result("maximum", {a, b});
  EXPECT_TRUE(std::isnan(larger[0]) && std::isnan(larger[1]));
  EXPECT_EQ(larger[2], 2);
  EXPECT_EQ(larger[3], 0);
  const auto smaller = float_result("minimum", {a, b});
  EXPECT_TRUE(std::isnan(smaller[0]) && std::isnan(smaller[1]));
  EXPECT_EQ(smaller[3], -infinity);
}

TEST(Elementwise, NanGoesThroughReluAndClamp) {
  EXPECT_TRUE(std::isnan(float_result("relu", {floats({1}, {nan})})[0]));
  EXPECT_TRUE(std::isnan(float_result("clamp", {floats({1}, {nan})}, {{"min", 0.0}})[0]));
  EXPECT_TRUE(std::isnan(float_result("hardtanh", {floats({1}, {nan})})[0]));
}

TEST(Elementwise, ClampTakesTheUpperBoundWhereTheyCross) {
  const Attrs crossed = {{"min", 3.0}, {"max", 1.0}};
  EXPECT_EQ(float_result("clamp", {floats({2}, {0, 5})}, crossed), (std::vector<float>{1, 1}));
  EXPECT_EQ(int_result("clamp", {ints({2}, {0, 5})}, crossed), (std::vector<int32_t>{1, 1}));
  EXPECT_THROW(OpRun("clamp", {floats({1}, {0})}), Error);
  EXPECT_THROW(OpRun("clamp", {ints({1}, {0})}, {{"min", 0.5}}), Error);
}

TEST(Elementwise, RoundsHalvesToEven) {
  EXPECT_EQ(float_result("round", {floats({5}, {0.5, 1.5, 2.5, -0.5, -1.5})}),
            (std::vector<float>{0, 2, 2, -0.0F, -2}));
}

TEST(Elementwise, DivisionAndRemainderHaveTheirSigns) {
  const HostTensor a = ints({4}, {7, -7, 7, -7});
  const HostTensor b = ints({4}, {3, 3, -3, -3});
  EXPECT_EQ(int_result("floor_divide", {a, b}), (std::vector<int32_t>{2, -3, -3, 2}));
  EXPECT_EQ(int_result("div_rounded", {a, b}, {{"rounding_mode", std::string("trunc")}}),
            (std::vector<int32_t>{2, -2, -2, 2}));
  EXPECT_EQ(int_result("remainder", {a, b}), (std::vector<int32_t>{1, 2, -2, -1}));
  EXPECT_EQ(int_result("fmod", {a, b}), (std::vector<int32_t>{1, -1, 1, -1}));
  const HostTensor x = floats({4}, {7.5, -7.5, 7.5, -7.5});
  const HostTensor y = floats({4}, {2, 2, -2, -2});
  EXPECT_EQ(float_result("floor_divide", {x, y}), (std::vector<float>{3, -4, -4, 3}));
  EXPECT_EQ(float_result("remainder", {x, y}), (std::vector<float>{1.5, 0.5, -0.5, -1.5}));
  EXPECT_EQ(float_result("fmod", {x, y}), (std::vector<float>{1.5, -1.5, 1.5, -1.5}));
}

TEST(Elementwise, IntegersWrapAndDoNotTrap) {
  EXPECT_EQ(int_result("neg", {ints({1}, {lowest})})[0], lowest);
  EXPECT_EQ(int_result("floor_divide", {ints({1}, {lowest}), ints({1}, {-1})})[0], lowest);
  EXPECT_EQ(int_result("remainder", {ints({1}, {lowest}), ints({1}, {-1})})[0], 0);
  EXPECT_EQ(int_result("add", {ints({1}, {2147483647}), ints({1}, {1})})[0], lowest);
  EXPECT_EQ(int_result("mul", {ints({1}, {65536}), ints({1}, {65537})})[0], 65536);
  EXPECT_THROW(OpRun("floor_divide", {ints({1}, {1}), ints({1}, {0})}), Error);
  EXPECT_THROW(OpRun("remainder", {ints({1}, {1}), ints({1}, {0})}), Error);
}

TEST(Elementwise, PowersOfIntegers) {
  EXPECT_EQ(int_result("pow", {ints({6}, {2, -3, 5, 1, -1, 7}), ints({6}, {10, 3, 0, -2, -3, -1})}),
            (std::vector<int32_t>{1024, -27, 1, 1, -1, 0}));
}

TEST(Elementwise, ShortPowersAreTheLongOnes) {
  const HostTensor x = floats({3}, {0.5, 2, 3});
  for (const float exponent : {0.5F, 2.0F, 3.0F, -2.0F, 1.7F}) {
    const auto result = float_result("pow", {x, floats({}, {exponent})});
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_FLOAT_EQ(result[i], std::pow(x.elements<float>()[i], exponent));
    }
  }
}

TEST(Elementwise, BoolArithmetic) {
  const HostTensor a = bools({4}, {0, 0, 1, 1});
  const HostTensor b = bools({4}, {0, 1, 0, 1});
  EXPECT_EQ(OpRun("add", {a, b})[0].elements<uint8_t>(), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(OpRun("mul", {a, b})[0].elements<uint8_t>(), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_THROW(OpRun("sub", {a, b}), Error);
}

TEST(Elementwise, CastCutsAndKeepsToItsRange) {
  const Attrs to_int = {{"dtype", DType::i32}};
  EXPECT_EQ(int_result("cast", {floats({5}, {2.9F, -2.9F, 1e20F, nan, -0.5F})}, to_int),
            (std::vector<int32_t>{2, -2, lowest, lowest, 0}));
  const auto truth = OpRun("cast", {floats({3}, {0, 0.1F, nan})}, {{"dtype", DType::boolean}});
  EXPECT_EQ(truth[0].elements<uint8_t>(), (std::vector<uint8_t>{0, 1, 1}));
}

TEST(Elementwise, CastsEveryHalf) {
  std::vector<Half> halves;
  std::vector<float> numbers;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    halves.push_back({static_cast<uint16_t>(bits)});
    numbers.push_back(to_float(halves.back()));
  }
  const HostTensor all(DType::f16, {65536}, halves);
  const auto widened = OpRun("cast", {all}, {{"dtype", DType::f32}});
  const auto whole = OpRun("cast", {all}, {{"dtype", DType::i32}});
  const auto truth = OpRun("cast", {all}, {{"dtype", DType::boolean}});
  const auto of_floats = OpRun("cast", {floats({65536}, numbers)}, {{"dtype", DType::i32}});
  EXPECT_EQ(whole[0].elements<int32_t>(), of_floats[0].elements<int32_t>());
  const auto back = OpRun("cast", {floats({65536}, numbers)}, {{"dtype", DType::f16}});
  const auto floats_out = widened[0].elements<float>();
  const auto truths = truth[0].elements<uint8_t>();
  const auto halves_out = back[0].elements<Half>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(floats_out[i]), std::bit_cast<uint32_t>(numbers[i])) << i;
    EXPECT_EQ(truths[i] != 0, numbers[i] != 0) << i;
    // A NaN that was signalling is quiet now.
    const bool nan = std::isnan(numbers[i]);
    EXPECT_EQ(halves_out[i].bits, nan ? halves[i].bits | 0x0200U : halves[i].bits) << i;
  }
}

TEST(Elementwise, CastToHalfRoundsToTheNearestEven) {
  const Attrs to_f16 = {{"dtype", DType::f16}};
  const std::vector<float> from = {1 + 0x1p-11F, 1 + 0x1.8p-10F, 65519, 65520,   -65520,   0x1p-25F,
                                   0x1.8p-25F,   -0x1p-24F,      1e30F, -1e-30F, infinity, -0.0F};
  const std::vector<float> wanted = {1,        1 + 0x1p-9F, 65504,    infinity, -infinity, 0,
                                     0x1p-24F, -0x1p-24F,   infinity, -0.0F,    infinity,  -0.0F};
  const auto rounded = OpRun("cast", {floats({12}, from)}, to_f16)[0].elements<Half>();
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(to_float(rounded[i])), std::bit_cast<uint32_t>(wanted[i]))
        << from[i];
  }
  const auto of_ints = OpRun("cast", {ints({4}, {2049, -2051, 65519, 70000})}, to_f16);
  const auto halves = of_ints[0].elements<Half>();
  EXPECT_EQ(to_float(halves[0]), 2048);
  EXPECT_EQ(to_float(halves[1]), -2052);
  EXPECT_EQ(to_float(halves[2]), 65504);
  EXPECT_EQ(to_float(halves[3]), infinity);
  EXPECT_EQ(to_float(OpRun("cast", {bools({1}, {1})}, to_f16)[0].elements<Half>()[0]), 1);
}

TEST(Elementwise, MixedTypesAndShapesAreRefused) {
  EXPECT_THROW(OpRun("add", {floats({1}, {1}), ints({1}, {1})}), Error);
  EXPECT_THROW(OpRun("add", {floats({2}, {1, 2}), floats({3}, {1, 2, 3})}), Error);
  EXPECT_THROW(OpRun("exp", {ints({1}, {1})}), Error);
  EXPECT_THROW(OpRun("where", {ints({1}, {1}), floats({1}, {1}), floats({1}, {1})}), Error);
}

TEST(Elementwise, MaskedFillTakesAValueOfAnyType) {
  const HostTensor mask = bools({2}, {1, 0});
  EXPECT_EQ(float_result("masked_fill", {floats({2}, {1, 2}), mask, ints({}, {-7})}),
            (std::vector<float>{-7, 2}));
}

TEST(Elementwise, GradientsOfPreluHaveTheShapeOfAllOperands) {
  const OpRun run("prelu_kernel_backward",
                  {floats({2}, {1, 2}), floats({2}, {-1, 3}), floats({3, 1}, {1, 2, 3})});
  EXPECT_EQ(run[0].elements<float>(), (std::vector<float>{1, 2, 2, 2, 3, 2}));
  EXPECT_EQ(run[1].elements<float>(), (std::vector<float>{-1, 0, -1, 0, -1, 0}));
}

TEST(Elementwise, EmptyTensorsAreFine) {
  EXPECT_TRUE(float_result("add", {floats({0, 3}, {}), floats({3}, {1, 2, 3})}).empty());
}

}  // namespace
}  // namespace tessera
