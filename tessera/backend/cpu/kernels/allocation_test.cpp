// That allocations are counted at all: every test of a kernel looks at them when it runs one (see
// run_kernel_for_test.h), and believes a count of zero. And what oneDNN allocates for itself.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tessera/backend/cpu/kernels/kernel_for_test.h"
#include "tessera/backend/cpu/kernels/onednn/count_onednn_for_test.h"

#ifdef TESSERA_COUNTS_ALLOCATIONS

namespace tessera::cpu {
namespace {

TEST(Allocations, AreCountedOnAllThreads) {
  const AllocationsSince before;
  std::thread([] { std::make_unique<std::vector<double>>(100)->front() = 1; }).join();
  EXPECT_GE(before.blocks(), 2);
  EXPECT_GE(before.bytes(), 800);
}

#ifdef TESSERA_WITH_ONEDNN

// A few small blocks for each primitive: lists of its arguments. They come and go with the call.
TEST(Allocations, OfOnednnAreFewAndSmall) {
  const WithoutKernels others("batch8,winograd_4,winograd_2,few_channels,narrow");
  const Geometry images = dense({4, 16, 20, 20}), weight = dense({32, 16, 3, 3});
  const KernelTrial trial("conv", {images, weight},
                          {{"stride", std::vector<int64_t>{2, 2}},
                           {"padding", std::vector<int64_t>{1, 1}},
                           {"dilation", std::vector<int64_t>{1, 1}},
                           {"groups", int64_t{1}}});
  if (!trial.kernel().starts_with("onednn")) GTEST_SKIP() << "oneDNN is not used here";
  trial.result(1);
  const int64_t runs = onednn_runs, blocks = library_allocations.blocks,
                bytes = library_allocations.bytes;
  trial.result(1);
  const int64_t more = onednn_runs - runs;
  EXPECT_GT(more, 0);
  EXPECT_LE(library_allocations.blocks - blocks, 12 * more);
  EXPECT_LE(library_allocations.bytes - bytes, 2048 * more);
}

#endif

}  // namespace
}  // namespace tessera::cpu

#endif
