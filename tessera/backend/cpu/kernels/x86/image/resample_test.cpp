#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"

namespace tessera::cpu {
namespace {

class Resample : public NeedsAvx2 {};

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

// No place reads infinity times 0 that the reference does not read.
TEST_F(Resample, InfinityStaysWhereItBelongs) {
  for (const std::string mode : {"nearest", "bilinear"}) {
    for (const Case& c : cases) {
      for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
        const Shape small{8, 16, c.height, c.width}, large{8, 16, c.to_height, c.to_width};
        SCOPED_TRACE(mode + tessera::to_string(small) + tessera::to_string(large) +
                     to_string(layout));
        Attrs attrs{{"output_size", std::vector<int64_t>{c.to_height, c.to_width}}};
        if (mode == "bilinear") attrs.set("align_corners", false);
        OperatorTrial forward("upsample_" + mode + "2d", {{small, layout}}, attrs, {layout});
        attrs.set("input_size", small);
        OperatorTrial backward("upsample_" + mode + "2d_backward", {{large, layout}}, attrs,
                               {layout});
        for (OperatorTrial* trial : {&forward, &backward}) {
          for (const size_t at : {0, 7, 40}) {
            trial->values(0)[at] = std::numeric_limits<float>::infinity();
          }
          trial->expect_agrees(trial->kernel(), 5e-7);
          EXPECT_TRUE(trial->kernel().starts_with("avx2_" + mode));
        }
      }
    }
  }
}

TEST_F(Resample, NearestAgreesWithTheReference) {
  expect_good("upsample_nearest2d", "avx2_nearest", {});
  expect_good("upsample_nearest2d", "avx2_nearest", {{"scales_h", 1.5}, {"scales_w", 2.0}});
}

TEST_F(Resample, BilinearAgreesWithTheReference) {
  expect_good("upsample_bilinear2d", "avx2_bilinear", {{"align_corners", false}});
  expect_good("upsample_bilinear2d", "avx2_bilinear", {{"align_corners", true}});
}

}  // namespace
}  // namespace tessera::cpu
