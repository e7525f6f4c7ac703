// Runs a graph on made-up values and says how long a step takes, where the time goes, how much of
// it is PyTorch's, and whether its kernels are right.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

std::string time_graph(Graph graph, int64_t runs, int threads, bool by_call);

// Writes a timeline of a few steps to `path`, for ui.perfetto.dev.
std::string trace_graph(Graph graph, const std::string& path, int64_t steps, int threads);

// Runs every call beside its operator's reference kernel. Error where one is wrong.
std::string check_graph(Graph graph, int64_t steps, int threads);

// Only compiles it: what keeps the step from being faster.
std::string why_slow(Graph graph);

}  // namespace tessera
