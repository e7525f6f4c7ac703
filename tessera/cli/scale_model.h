// What a step costs on many machines, on paper: a measured step, the gradients it has to add up and
// a network give the step's time on any number of nodes.
//
// Instances form a chain in the order of their ranks. Gradients travel in buckets, and these in
// chunks: a chunk goes up the chain, where each instance adds its own values, and the total comes
// down again. A link carries one chunk at a time in each direction, and holds it for the latency
// and for its bytes. Chunks follow one another over the links, so that of many chunks each costs
// the slowest link's time once, and the first one all links' times.
//
// Not priced: adding up itself, and cores that the network takes from the step.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "tessera/dist/operation.h"

namespace tessera {

struct Link {
  double latency = 0;                                          // seconds for a message of no bytes
  double bandwidth = std::numeric_limits<double>::infinity();  // bytes a second, in each direction

  double seconds_for(int64_t bytes) const {
    return latency + static_cast<double>(bytes) / bandwidth;
  }
};

// Gradients that travel together.
struct Bucket {
  int64_t bytes = 0;
  double ready = 1;  // when they are there, as a share of the step before its update
};

// What one instance does alone.
struct Workload {
  double step_seconds = 0;           // of one weight update, the update included
  double update_share = 0;           // of the step: what has to wait for the last bucket
  std::vector<Bucket> buckets = {};  // the one that is ready first, first
};

struct Cluster {
  Link network = {};  // between nodes
  Link local = {};    // between instances of a node
  int64_t instances_per_node = 1;
  int64_t chunk_bytes = dist::most_piece_bytes;  // the most; long chains have smaller ones
  bool overlap = true;  // a bucket leaves when it is ready; otherwise all wait for the last one
  bool strong = false;  // instances share the batch of one; otherwise each has as much as it
};

// What a step would have to get rid of to become faster.
enum class Bound { compute, latency, bandwidth };
std::string_view name_of(Bound bound);

struct ScalePoint {
  int64_t nodes = 1, instances = 1;
  double compute_seconds = 0;        // of the step, without waiting for the others
  double step_seconds = 0;           // all of it
  double communication_seconds = 0;  // of all buckets, if nothing else went on
  double hidden = 1;                 // the share of it that the step does not wait for
  double speed_up = 1;               // in samples a second, over one instance alone
  double efficiency = 1;             // the share of it that each instance has
  Bound bound = Bound::compute;
};

// How much longer than its computing a step may take and still count as bound by that.
inline constexpr double noticeable = 0.05;

// Whether it can be worked out in some seconds.
bool can_price(const Workload& workload, const Cluster& cluster, int64_t nodes);
ScalePoint price(const Workload& workload, const Cluster& cluster,
                 int64_t nodes);  // Error otherwise

// A chunk and when it may leave; in the order in which they leave.
struct Chunk {
  int64_t bytes = 0;
  double ready = 0;
};

// When the last one is back at the first instance; 0 where there are no chunks or no links.
double last_arrival(const std::vector<Chunk>& chunks, const Cluster& cluster, int64_t instances);

}  // namespace tessera
