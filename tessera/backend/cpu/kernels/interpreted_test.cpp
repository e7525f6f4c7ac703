#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/ir/text.h"

namespace tessera::cpu {
namespace {

Attrs body_of(std::string_view text) { return {{"body", body_attr(parse_body(text))}}; }

// The trial also sees that runs allocate nothing.
TEST(Interpreted, RunsWhereNoCodeIs) {
  const WithoutKernels without("generated");
  const Shape shape = {4, 16, 9, 30}, channels = {16, 1, 1};
  const Attrs map = body_of("%0 = mul(a0, a1); %1 = exp(%0); %2 = add(%1, a2); out %2");
  for (const Layout& layout : {plain_layout, channels_layout}) {
    OperatorTrial trial("map", {{shape, layout}, {{}}, {shape, layout}}, map, {layout});
    trial.expect_agrees("interpreted", 0);
  }
  OperatorTrial("map_reduce", {{shape}, {channels}},
                body_of("%0 = mul(a0, a1); out %0, sum %0 over [0, 2], sum a1 over [1]"))
      .expect_agrees("interpreted", 0);
}

// Other bits than those of code: it must not be taken because it was faster once.
TEST(Interpreted, IsNotTimedBesideCode) {
  const Attrs attrs = completed(op("map"), body_of("%0 = exp(a0); out %0"));
  const KernelOperand operand{DType::f32, dense({4096})};
  const auto entries =
      applying_entries({op("map"), attrs, {&operand, 1}, {&operand, 1}, target_for_test()});
  EXPECT_EQ(entries.size(), 1U);
}

}  // namespace
}  // namespace tessera::cpu
