#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/x86/batch8/batch_trial_for_test.h"

namespace tessera::cpu {
namespace {

class Batch8Norm : public NeedsAvx2 {};

void expect_good(const BatchTrial& trial, double tolerance, const std::string& what) {
  ASSERT_EQ(trial.kernel(), "batch8") << what;
  EXPECT_LE(trial.error(), tolerance) << what;
  EXPECT_TRUE(trial.same_bits_for_any_threads()) << what;
}

struct Case {
  std::string name;
  Shape input;
  int64_t group;
  bool affine = true;
};

std::vector<Case> cases() {
  return {{"of the small network", {16, 12, 9, 9}, 3},
          {"one group", {8, 4, 5, 7}, 1},
          {"a group for each channel", {24, 6, 3, 3}, 6},
          {"without weights", {8, 6, 31}, 2, false},
          {"one element", {8, 2, 1, 1}, 1}};
}

Attrs attrs_of(const Case& c) {
  return {{"N", c.input[0]},
          {"C", c.input[1]},
          {"HxW", numel(c.input) / (c.input[0] * c.input[1])},
          {"group", c.group}};
}

TEST_F(Batch8Norm, AgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    const Shape weight = c.affine ? Shape{c.input[1]} : Shape{};
    expect_good(
        {"group_norm", {{c.input, batch_layout}, {weight}, {weight}}, attrs_of(c), {batch_layout}},
        2e-6, c.name);
  }
}

TEST_F(Batch8Norm, StaysExactFarFromZero) {
  std::vector<float> values;
  for (int i = 0; i < 8 * 4 * 30; ++i) {
    values.push_back(1000.0F + 0.25F * static_cast<float>(i * 13 % 17));
  }
  expect_good({"group_norm",
               {{{8, 4, 5, 6}, batch_layout, DType::f32, values}, {{4}}, {{4}}},
               attrs_of({"", {8, 4, 5, 6}, 2}),
               {batch_layout}},
              1e-5, "far from zero");
}

// Their deviation is zero: a mean off by one in the last place would be seen.
TEST_F(Batch8Norm, StaysExactForEqualElements) {
  for (const int64_t size : {3, 30, 1000}) {
    const std::vector<float> values(static_cast<size_t>(8 * 2 * size), 1.6124F);
    expect_good({"group_norm",
                 {{{8, 2, size, 1}, batch_layout, DType::f32, values}, {{2}}, {{2}}},
                 attrs_of({"", {8, 2, size, 1}, 2}),
                 {batch_layout}},
                1e-7, "equal elements");
  }
}

TEST_F(Batch8Norm, BackwardAgreesWithTheReferenceForAnyNumberOfThreads) {
  for (const Case& c : cases()) {
    for (const auto& mask : {std::vector<int64_t>{1, 1, 1}, {1, 0, 0}, {0, 1, 1}}) {
      Attrs attrs = attrs_of(c);
      attrs.set("output_mask", mask);
      const Shape statistics{c.input[0], c.group};
      expect_good({"group_norm_backward",
                   {{c.input, batch_layout},
                    {c.input, batch_layout},
                    {statistics},
                    {statistics},
                    {c.affine ? Shape{c.input[1]} : Shape{}}},
                   attrs,
                   {batch_layout}},
                  3e-6, c.name);
    }
  }
}

TEST_F(Batch8Norm, SumsOfChannelsAgreeWithTheReferenceForAnyNumberOfThreads) {
  for (const Shape& shape : {Shape{16, 12, 9, 9}, Shape{72, 5, 26, 26}, Shape{8, 1, 3}}) {
    std::vector<int64_t> dims{0};
    for (size_t d = 2; d < shape.size(); ++d) dims.push_back(static_cast<int64_t>(d));
    for (const bool keep : {false, true}) {
      expect_good({"sum", {{shape, batch_layout}}, {{"dim", dims}, {"keepdim", keep}}, {}}, 1e-6,
                  tessera::to_string(shape));
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
