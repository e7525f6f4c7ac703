// The buckets of gradients that instances of a program would add up, and when each is ready.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cli/scale_model.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Small gradients travel together, up to so much.
inline constexpr int64_t most_bucket_bytes = 1 << 20;

// What of a Workload a program says; its step's time is measured.
struct GradientBuckets {
  std::vector<Bucket> buckets = {};  // the one that is ready first, first
  double update_share = 0;
};

// Of a training step, which adds up over replicas or, where it was compiled for one, would. Nodes
// are weighed by their cost and run in the graph's order; only the last of `accumulation`
// micro-batches sends. Error where the program does not train.
GradientBuckets buckets_of(const Graph& step, int64_t accumulation);

// For sizes alone: they become ready evenly over the last two thirds of the step, as a backward
// pass that takes twice the time of the forward pass makes them.
GradientBuckets buckets_of(const std::vector<int64_t>& bytes);

// So many parameters of 4 bytes each, in buckets as large as may be.
GradientBuckets buckets_of_parameters(int64_t parameters);

}  // namespace tessera
