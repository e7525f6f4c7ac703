#include "tessera/backend/cpu/kernels/tuner.h"

#include <gtest/gtest.h>

#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

struct Product {
  Attrs attrs;
  std::vector<KernelOperand> inputs, outputs;

  explicit Product(int64_t side)
      : inputs(2, KernelOperand{DType::f32, dense({side, side})}),
        outputs(1, KernelOperand{DType::f32, dense({side, side})}) {}
  KernelUse use() const { return {op("matmul"), attrs, inputs, outputs, target_for_test()}; }
};

TEST(Tuner, TimesAUseOnceAndCanRepeatItsChoice) {
  const Product product(160);
  if (applying_entries(product.use()).size() < 2) GTEST_SKIP() << "there is only one kernel here";
  KernelTuner tuner({}, 2);
  const std::string chosen = tuner.choose(product.use()).name;
  ASSERT_EQ(tuner.choices().size(), 1U);
  EXPECT_EQ(tuner.choices().begin()->second, chosen);
  EXPECT_EQ(tuner.choose(product.use()).name, chosen);

  // Whatever was chosen before is taken, without a clock.
  for (const KernelEntry* entry : applying_entries(product.use())) {
    KernelTuner repeating({{text_of(product.use()), std::string(entry->name)}}, 0);
    EXPECT_EQ(repeating.choose(product.use()).name, entry->name);
    EXPECT_EQ(repeating.choices().size(), 1U);
  }
}

TEST(Tuner, WithoutTimingTheTableDecides) {
  const Product product(160);
  KernelTuner tuner({{"something else", "packed"}, {text_of(product.use()), "gone"}}, 0);
  EXPECT_EQ(tuner.choose(product.use()).name, choose_kernel(product.use()).name);
  EXPECT_TRUE(tuner.choices().empty());
}

TEST(Tuner, ShortCallsAreNotTimed) {
  const Product product(2);
  KernelTuner tuner({}, 2);
  EXPECT_EQ(tuner.choose(product.use()).name, choose_kernel(product.use()).name);
}

TEST(Tuner, TheTextTellsUsesApart) {
  Product a(16), b(16), c(16);
  b.inputs[0].geometry.strides = {1, 16};
  c.inputs[1].layout = batch_layout;
  c.inputs[1].geometry = dense({2, 16, 8});
  EXPECT_NE(text_of(a.use()), text_of(b.use()));
  EXPECT_NE(text_of(a.use()), text_of(c.use()));
  const Target precise{.precise = true};
  EXPECT_NE(text_of(a.use()), text_of({op("matmul"), a.attrs, a.inputs, a.outputs, precise}));
}

}  // namespace
}  // namespace tessera::cpu
