#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch_trial_for_test.h"

namespace tessera::cpu {
namespace {

using Operand = BatchTrial::Operand;

class Batch8Pool : public NeedsAvx2 {};

void expect_good(const BatchTrial& trial, double tolerance, const std::string& what) {
  ASSERT_EQ(trial.kernel(), "batch8") << what;
  EXPECT_LE(trial.error(), tolerance) << what;
  EXPECT_TRUE(trial.same_bits_for_any_threads()) << what;
}

struct Case {
  std::string name;
  Shape input;
  Attrs attrs;
};

std::vector<Case> cases() {
  const auto two = std::vector<int64_t>{2, 2};
  return {
      {"pairs", {16, 5, 26, 26}, {{"kernel_size", two}}},
      {"pairs that leave an edge", {8, 3, 7, 9}, {{"kernel_size", two}}},
      {"pairs over the edge", {8, 3, 7, 9}, {{"kernel_size", two}, {"ceil_mode", true}}},
      {"overlap",
       {8, 3, 9, 8},
       {{"kernel_size", std::vector<int64_t>{3, 2}},
        {"stride", std::vector<int64_t>{2, 1}},
        {"padding", std::vector<int64_t>{1, 1}}}},
      {"dilation",
       {8, 2, 10, 11},
       {{"kernel_size", std::vector<int64_t>{3}},
        {"stride", std::vector<int64_t>{2}},
        {"dilation", std::vector<int64_t>{2}},
        {"padding", std::vector<int64_t>{1}}}},
      {"gaps", {8, 2, 10, 11}, {{"kernel_size", two}, {"stride", std::vector<int64_t>{3, 4}}}},
  };
}

BatchTrial forward(const Case& c, std::vector<float> values = {}) {
  return {"max_pool2d_with_indices",
          {{c.input, batch_layout, DType::f32, std::move(values)}},
          c.attrs,
          {batch_layout, batch_layout}};
}

TEST_F(Batch8Pool, AgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) expect_good(forward(c), 0, c.name);
}

TEST_F(Batch8Pool, TakesTheFirstOfEqualsAndTheLastNan) {
  for (const Case& c : cases()) {
    std::vector<float> values;
    const float some[] = {0, -0.0F, 1, NAN, 1, -std::numeric_limits<float>::infinity(), 0};
    for (int64_t i = 0; i < numel(c.input); ++i) values.push_back(some[i * i % 53 % 7]);
    expect_good(forward(c, values), 0, c.name);
    expect_good(
        forward(c, std::vector<float>(values.size(), -std::numeric_limits<float>::infinity())), 1e9,
        c.name);
  }
}

TEST_F(Batch8Pool, BackwardAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    const auto indices = forward(c).expected()[1];
    const auto type = infer(op("max_pool2d_with_indices"), {{TensorType{DType::f32, c.input}}},
                            completed(op("max_pool2d_with_indices"), c.attrs))
                          .at(0);
    const BatchTrial trial("max_pool2d_with_indices_backward",
                           {{type.shape, batch_layout},
                            {c.input, batch_layout},
                            {type.shape, batch_layout, DType::i32, indices}},
                           c.attrs, {batch_layout});
    expect_good(trial, 1e-6, c.name);
  }
}

TEST_F(Batch8Pool, BackwardTakesAnyPlaceOfThePlane) {
  std::vector<float> indices;
  for (int32_t i = 0; i < 8 * 3 * 4 * 4; ++i) {
    indices.push_back(std::bit_cast<float>(i * 7919 % 64));
  }
  const BatchTrial trial("max_pool2d_with_indices_backward",
                         {{{8, 3, 4, 4}, batch_layout},
                          {{8, 3, 8, 8}, batch_layout},
                          {{8, 3, 4, 4}, batch_layout, DType::i32, indices}},
                         {{"kernel_size", std::vector<int64_t>{2, 2}}}, {batch_layout});
  expect_good(trial, 1e-6, "anywhere");
}

}  // namespace
}  // namespace tessera::cpu
