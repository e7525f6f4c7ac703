#include "tessera/cli/scale_buckets.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/base/error.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

// Two layers: the gradient of the second is there first.
constexpr const char* for_one_replica = R"(graph "lesson" {
  input data "x" %0: f32[512,512]
  input hyperparameter "n" %1: f32[2]
  state parameter "a" %2: f32[512,512] update %9
  state parameter "b" %3: f32[512,512] update %10
  %4 = matmul(%0, %2) : f32[512,512]
  %5 = matmul(%4, %3) : f32[512,512]
  %6 = matmul(%5, %3) : f32[512,512]
  %7 = matmul(%4, %6) : f32[512,512]
  %8 = matmul(%0, %7) : f32[512,512]
  update %9 = sgd(%2, %8, _, _, %1, %1, %1, %1) {nesterov = false} : f32[512,512]
  update %10 = sgd(%3, %7, _, _, %1, %1, %1, %1) {nesterov = false} : f32[512,512]
  output "y" %5
}
)";

// Two gradients that replicas add up together.
constexpr const char* for_replicas = R"(graph "lesson" {
  input data "x" %0: f32[4]
  input hyperparameter "n" %1: f32[2]
  state parameter "a" %2: f32[4] update %8
  state parameter "b" %3: f32[4] update %9
  %4 = mul(%0, %2) : f32[4]
  %5 = mul(%4, %3) : f32[4]
  update %6, %7 = all_reduce(%4, %5) {group_size = 0, mean = false, orthogonal = false} : f32[4], f32[4]
  update %8 = sgd(%2, %6, _, _, %1, %1, %1, %1) {nesterov = false} : f32[4]
  update %9 = sgd(%3, %7, _, _, %1, %1, %1, %1) {nesterov = false} : f32[4]
  output "y" %5
}
)";

TEST(ScaleBuckets, OfAProgramForOneReplicaAreItsGradients) {
  const GradientBuckets found = buckets_of(read_graph(for_one_replica), 1);
  ASSERT_EQ(found.buckets.size(), 2U);  // each fills one
  EXPECT_EQ(found.buckets[0].bytes, 1 << 20);
  EXPECT_DOUBLE_EQ(found.buckets[0].ready, 4.0 / 5);  // of five products
  EXPECT_DOUBLE_EQ(found.buckets[1].ready, 1);
  EXPECT_GT(found.update_share, 0);
  EXPECT_LT(found.update_share, 0.2);
}

TEST(ScaleBuckets, OfReplicasAreWhatTheyAddUp) {
  const GradientBuckets found = buckets_of(read_graph(for_replicas), 1);
  ASSERT_EQ(found.buckets.size(), 1U);
  EXPECT_EQ(found.buckets[0].bytes, 2 * 4 * 4);
  EXPECT_DOUBLE_EQ(found.buckets[0].ready, 1);
}

TEST(ScaleBuckets, OnlyTheLastMicroBatchSends) {
  const GradientBuckets found = buckets_of(read_graph(for_one_replica), 4);
  EXPECT_DOUBLE_EQ(found.buckets[0].ready, (3 + 4.0 / 5) / 4);
  EXPECT_DOUBLE_EQ(found.buckets[1].ready, 1);
  EXPECT_LT(found.update_share, buckets_of(read_graph(for_one_replica), 1).update_share);
}

// A factor of all gradients does not make the first one wait for the last.
TEST(ScaleBuckets, AreReadyBeforeTheyAreClipped) {
  const GradientBuckets found = buckets_of(read_graph(R"(graph "lesson" {
  input data "x" %0: f32[512,512]
  input hyperparameter "n" %1: f32[2]
  state parameter "a" %2: f32[512,512] update %7
  state parameter "b" %3: f32[512,512] update %9
  %4 = matmul(%0, %2) : f32[512,512]
  %5 = matmul(%4, %3) : f32[512,512]
  update %10 = clip_factor(%1, %4, %5) : f32[]
  update %6 = mul(%4, %10) : f32[512,512]
  update %7 = sgd(%2, %6, _, _, %1, %1, %1, %1) {nesterov = false} : f32[512,512]
  update %8 = mul(%5, %10) : f32[512,512]
  update %9 = sgd(%3, %8, _, _, %1, %1, %1, %1) {nesterov = false} : f32[512,512]
}
)"),
                                           1);
  ASSERT_EQ(found.buckets.size(), 2U);
  EXPECT_DOUBLE_EQ(found.buckets[0].ready, 0.5);
  EXPECT_DOUBLE_EQ(found.buckets[1].ready, 1);
}

TEST(ScaleBuckets, AProgramThatDoesNotTrainIsRefused) {
  const Graph graph = read_graph(R"(graph "inference" {
  input data "x" %0: f32[2]
  %1 = exp(%0) : f32[2]
  output "y" %1
}
)");
  try {
    buckets_of(graph, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "program 'inference' has no gradients to add up: no optimiser's update is in it; a "
              "training model was wanted, or sizes with --bucket or --parameters");
  }
}

TEST(ScaleBuckets, OfSizesAreReadyOverTheLastTwoThirds) {
  const std::vector<Bucket> buckets = buckets_of({10, 20}).buckets;
  EXPECT_EQ(buckets[1].bytes, 20);
  EXPECT_DOUBLE_EQ(buckets[0].ready, 2.0 / 3);
  EXPECT_DOUBLE_EQ(buckets[1].ready, 1);
}

TEST(ScaleBuckets, OfParametersHoldThemAll) {
  const std::vector<Bucket> buckets = buckets_of_parameters(11700000).buckets;
  EXPECT_EQ(buckets.size(), 45U);
  const auto add = [](int64_t sum, const Bucket& bucket) { return sum + bucket.bytes; };
  EXPECT_EQ(std::accumulate(buckets.begin(), buckets.end(), int64_t{0}, add), 4 * 11700000);
  EXPECT_THROW(buckets_of_parameters(int64_t{1} << 50), Error);
}

}  // namespace
}  // namespace tessera
