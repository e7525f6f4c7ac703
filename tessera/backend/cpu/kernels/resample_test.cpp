#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

struct Case {
  int64_t height, width, to_height, to_width;
};

constexpr Case cases[] = {
    {4, 5, 8, 10}, {9, 16, 18, 32}, {7, 3, 5, 11}, {6, 6, 6, 6}, {8, 40, 3, 20}};

void expect_good(const std::string& op, const std::string& kernel, Attrs attrs) {
  for (const Case& c : cases) {
    for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
      const Shape small{8, 16, c.height, c.width}, large{8, 16, c.to_height, c.to_width};
      SCOPED_TRACE(op + tessera::to_string(small) + tessera::to_string(large) + to_string(layout));
      attrs.set("output_size", std::vector<int64_t>{c.to_height, c.to_width});
      OperatorTrial(op, {{small, layout}}, attrs, {layout}).expect_agrees(kernel, 3e-7);
      Attrs back = attrs;
      back.set("input_size", small);
      OperatorTrial(op + "_backward", {{large, layout}}, back, {layout})
          .expect_agrees(kernel + "_backward", 5e-7);
    }
  }
}

TEST(Resample, NearestAgreesWithTheReference) {
  expect_good("upsample_nearest2d", "avx2_nearest", {});
  expect_good("upsample_nearest2d", "avx2_nearest", {{"scales_h", 1.5}, {"scales_w", 2.0}});
}

TEST(Resample, BilinearAgreesWithTheReference) {
  expect_good("upsample_bilinear2d", "avx2_bilinear", {{"align_corners", false}});
  expect_good("upsample_bilinear2d", "avx2_bilinear", {{"align_corners", true}});
}

}  // namespace
}  // namespace tessera::cpu
