#include "tessera/kernels/operand_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

// What the reader must give, element by element.
std::vector<int16_t> expected(const std::vector<int16_t>& memory, const Shape& shape,
                              const Strides& strides) {
  std::vector<int16_t> out;
  for (int64_t i = 0; i < numel(shape); ++i) {
    int64_t at = 0;
    int64_t left = i;
    for (size_t d = shape.size(); d-- > 0;) {
      at += left % shape[d] * strides[d];
      left /= shape[d];
    }
    out.push_back(memory[static_cast<size_t>(at)]);
  }
  return out;
}

TEST(OperandReader, AnyStridesAnyCut) {
  std::vector<int16_t> memory(4096);
  std::iota(memory.begin(), memory.end(), int16_t{0});
  struct Case {
    Shape shape, to;
    Strides strides;
  };
  const std::vector<Case> cases = {
      {{3, 5}, {3, 5}, {5, 1}},                  // dense
      {{3, 5}, {3, 5}, {1, 3}},                  // transposed
      {{3, 5}, {3, 5}, {20, 2}},                 // with gaps
      {{5}, {3, 5}, {1}},                        // repeated rows
      {{3, 1}, {3, 5}, {1, 1}},                  // repeated columns
      {{}, {3, 5}, {}},                          // one element
      {{2, 3, 4}, {2, 3, 4}, {12, 1, 3}},        // inner two swapped
      {{2, 1, 4}, {2, 3, 4}, {40, 7, 3}},        // middle repeated
      {{1, 1, 1}, {1, 1, 1}, {9, 9, 9}},         // nothing but ones
      {{7, 11, 13}, {7, 11, 13}, {143, 13, 1}},  // dense, odd sizes
  };
  for (const Case& c : cases) {
    const TensorView view{reinterpret_cast<std::byte*>(memory.data()), DType::i16, c.shape,
                          c.strides, true};
    const OperandReader reader(view, c.to);
    const auto wanted = expected(memory, c.to, broadcast_strides(c.shape, c.strides, c.to));
    alignas(64) std::byte scratch[OperandReader::scratch_bytes];
    const auto total = static_cast<int64_t>(wanted.size());
    for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}}) {
      for (int64_t begin = 0; begin < total; begin += step) {
        const int64_t count = std::min(step, total - begin);
        const auto* got = reader.read_as<int16_t>(begin, count, scratch);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(got[i], wanted[static_cast<size_t>(begin + i)])
              << to_string(c.to) << " at " << begin + i << " step " << step;
        }
      }
    }
  }
}

TEST(OperandReader, KnowsItsKind) {
  float x[6] = {};
  const Shape two_by_three = {2, 3};
  const auto reader = [&](const Shape& shape, const Strides& strides) {
    return OperandReader({reinterpret_cast<std::byte*>(x), DType::f32, shape, strides, true},
                         two_by_three);
  };
  EXPECT_TRUE(reader({2, 3}, {3, 1}).dense());
  EXPECT_FALSE(reader({2, 3}, {1, 2}).dense());
  EXPECT_FALSE(reader({3}, {1}).dense());
  EXPECT_TRUE(reader({}, {}).uniform());
  EXPECT_FALSE(reader({3}, {1}).uniform());
}

}  // namespace
}  // namespace tessera
