#include "tessera/cli/scale_model.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {
namespace {

bool has_equal_links(const Cluster& cluster, int64_t instances) {
  return cluster.instances_per_node == 1 || instances <= cluster.instances_per_node;
}

// From some chunk on, nothing waits for a gradient any more: that one and all behind it follow one
// another over one link, and the slowest of them leads or holds up the others over the rest.
double over_equal_links(const std::vector<Chunk>& chunks, const Link& link, int64_t links) {
  double last = 0, in_turn = 0, slowest = 0;
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    const double seconds = link.seconds_for(chunk->bytes);
    in_turn += seconds;
    slowest = std::max(slowest, seconds);
    last = std::max(last, chunk->ready + in_turn + static_cast<double>(links - 1) * slowest);
  }
  return last;
}

// Whether a chunk crosses the network on each of its links: up the chain and down again. The last
// instance of a node has its next one on another node; all others are local.
std::vector<bool> crossings(const Cluster& cluster, int64_t instances) {
  std::vector<bool> way;
  const auto pass = [&](int64_t next) { way.push_back(next % cluster.instances_per_node == 0); };
  for (int64_t next = 1; next < instances; ++next) pass(next);
  for (int64_t next = instances - 1; next >= 1; --next) pass(next);
  return way;
}

// A link takes a chunk when the link before has brought it and when it is done with its last one.
double over_mixed_links(const std::vector<Chunk>& chunks, const Cluster& cluster,
                        int64_t instances) {
  const std::vector<bool> crosses = crossings(cluster, instances);
  std::vector<double> done(crosses.size(), 0.0);
  for (const Chunk& chunk : chunks) {
    const double across = cluster.network.seconds_for(chunk.bytes);
    const double within = cluster.local.seconds_for(chunk.bytes);
    double now = chunk.ready;
    for (size_t link = 0; link < done.size(); ++link) {
      now = std::max(now, done[link]) + (crosses[link] ? across : within);
      done[link] = now;
    }
  }
  return done.back();
}

// The parts of a step of one instance among several, in seconds.
struct Parts {
  double micro_batches, update;
};

// A batch that is shared is assumed to take its share of the time, which is the best case: small
// batches use a processor less well. The update touches all weights, whatever the batch.
Parts parts_of_step(const Workload& workload, const Cluster& cluster, int64_t instances) {
  const double update = workload.step_seconds * workload.update_share;
  const double micro_batches = workload.step_seconds - update;
  return {micro_batches / static_cast<double>(cluster.strong ? instances : 1), update};
}

int64_t chunk_bytes_of(const Cluster& cluster, int64_t instances) {
  return static_cast<int64_t>(dist::piece_bytes_for(static_cast<size_t>(instances),
                                                    static_cast<size_t>(cluster.chunk_bytes)));
}

std::vector<Chunk> chunks_of(const Workload& workload, const Cluster& cluster, int64_t instances,
                             double seconds) {
  const int64_t most = chunk_bytes_of(cluster, instances);
  std::vector<Chunk> chunks;
  for (const Bucket& bucket : workload.buckets) {
    const double ready = seconds * (cluster.overlap ? bucket.ready : 1);
    for (int64_t sent = 0; sent < bucket.bytes; sent += most) {
      chunks.push_back({std::min(most, bucket.bytes - sent), ready});
    }
  }
  return chunks;
}

double step_seconds(const Workload& workload, const Cluster& cluster, int64_t instances) {
  const Parts parts = parts_of_step(workload, cluster, instances);
  const double reduced = last_arrival(chunks_of(workload, cluster, instances, parts.micro_batches),
                                      cluster, instances);
  return std::max(parts.micro_batches, reduced) + parts.update;
}

// Whichever would help more if it were gone.
Bound bound_by_links(const Workload& workload, const Cluster& cluster, int64_t instances) {
  Cluster prompt = cluster, wide = cluster;
  prompt.network.latency = prompt.local.latency = 0;
  wide.network.bandwidth = wide.local.bandwidth = Link{}.bandwidth;
  return step_seconds(workload, prompt, instances) < step_seconds(workload, wide, instances)
             ? Bound::latency
             : Bound::bandwidth;
}

}  // namespace

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::latency:
      return "latency";
    case Bound::bandwidth:
      return "bandwidth";
    case Bound::compute:
      break;
  }
  return "compute";
}

double last_arrival(const std::vector<Chunk>& chunks, const Cluster& cluster, int64_t instances) {
  if (chunks.empty() || instances == 1) return 0;
  if (!has_equal_links(cluster, instances)) return over_mixed_links(chunks, cluster, instances);
  const bool one_node = instances <= cluster.instances_per_node;
  return over_equal_links(chunks, one_node ? cluster.local : cluster.network, 2 * (instances - 1));
}

// Equal links are a formula of the chunks; through mixed ones every chunk is followed.
bool can_price(const Workload& workload, const Cluster& cluster, int64_t nodes) {
  constexpr double most_chunks = 5e6, most_passages = 5e7;  // a second or so each
  const int64_t instances = nodes * cluster.instances_per_node;
  const auto chunk = static_cast<double>(chunk_bytes_of(cluster, instances));
  double chunks = 0;
  for (const Bucket& bucket : workload.buckets) {
    chunks += static_cast<double>(bucket.bytes) / chunk + 1;
  }
  if (chunks > most_chunks) return false;
  return has_equal_links(cluster, instances) ||
         2 * chunks * static_cast<double>(instances) <= most_passages;
}

ScalePoint price(const Workload& workload, const Cluster& cluster, int64_t nodes) {
  const int64_t instances = nodes * cluster.instances_per_node;
  check(can_price(workload, cluster, nodes), ErrorKind::value,
        "chunks of {} bytes are too many to work out for {} instances; give larger ones with "
        "--chunk, or fewer nodes",
        chunk_bytes_of(cluster, instances), instances);
  const Parts parts = parts_of_step(workload, cluster, instances);
  ScalePoint point{.nodes = nodes, .instances = instances};
  point.compute_seconds = parts.micro_batches + parts.update;
  point.step_seconds = step_seconds(workload, cluster, instances);
  point.communication_seconds =
      last_arrival(chunks_of(workload, cluster, instances, 0), cluster, instances);
  const double waited = std::max(0.0, point.step_seconds - point.compute_seconds);
  if (waited > 0) point.hidden = std::max(0.0, 1 - waited / point.communication_seconds);
  const auto count = static_cast<double>(instances);
  point.speed_up = workload.step_seconds / point.step_seconds * (cluster.strong ? 1 : count);
  point.efficiency = point.speed_up / count;
  if (waited > noticeable * point.compute_seconds) {
    point.bound = bound_by_links(workload, cluster, instances);
  }
  return point;
}

}  // namespace tessera
