#include "tessera/backend/cpu/target.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

TEST(Target, IsPrinted) {
  EXPECT_EQ(print(Target{.level = CpuLevel::portable}), "portable, vectors of 4 floats");
  EXPECT_EQ(print(Target{.level = CpuLevel::avx2,
                         .disabled_kernels = {"packed", "batch8"},
                         .precise = true,
                         .autotune = true}),
            "avx2, vectors of 8 floats, precise, autotuned, without packed, batch8");
}

// A convolution, its activation and a product.
Graph small_network() {
  Graph graph;
  graph.name = "network";
  Builder builder(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {8, 16, 12, 12}});
  const ValueId w = graph.add_input(InputKind::data, "w", {DType::f32, {16, 16, 3, 3}});
  const ValueId m = graph.add_input(InputKind::data, "m", {DType::f32, {12, 20}});
  const ValueId conv = builder.add("conv", {x, w, {}},
                                   {{"stride", std::vector<int64_t>{1, 1}},
                                    {"padding", std::vector<int64_t>{1, 1}},
                                    {"dilation", std::vector<int64_t>{1, 1}},
                                    {"groups", int64_t{1}}});
  const ValueId rows = builder.reshape(builder.add("relu", {conv}), {8 * 16 * 12, 12});
  graph.add_output("y", builder.add("matmul", {rows, m}));
  return graph;
}

TEST(Target, IsRecordedInThePlan) {
  const Target target{.level = CpuLevel::portable, .disabled_kernels = {"runs"}, .precise = true};
  const Plan plan = lower(small_network(), {.target = target});
  EXPECT_EQ(print(plan.target), print(target));
  EXPECT_NE(print(plan).find("\ntarget: portable, vectors of 4 floats, precise, without runs\n"),
            std::string::npos)
      << print(plan);
}

TEST(Target, PortablePlansHavePortableKernels) {
  if (machine_level() == CpuLevel::portable) GTEST_SKIP() << "a library may use this whole machine";
  const Plan plan = lower(small_network(), {.target = {.level = CpuLevel::portable}});
  const Plan fast = lower(small_network());
  const std::set<std::string> portable = {"reference", "strided", "interpreted"};
  for (const Call& call : plan.calls) EXPECT_TRUE(portable.contains(call.kernel)) << call.kernel;
  std::set<std::string> kernels;
  for (const Call& call : fast.calls) kernels.insert(call.kernel);
  EXPECT_FALSE(kernels.contains("reference")) << print(fast);
}

}  // namespace
}  // namespace tessera::cpu
