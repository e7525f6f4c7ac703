#include "tessera/cli/scale_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <random>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr int64_t chunk = 1000;

Workload work_of(std::vector<Bucket> buckets, double update_share = 0) {
  return {.step_seconds = 0.01, .update_share = update_share, .buckets = std::move(buckets)};
}

Cluster cluster_of(double latency, double bandwidth) {
  return {.network = {latency, bandwidth}, .local = {1e-6, 1e10}, .chunk_bytes = chunk};
}

TEST(ScaleModel, OneInstanceTakesItsOwnTime) {
  const ScalePoint point = price(work_of({{5000, 0.5}, {700, 1}}, 0.1), cluster_of(1, 1), 1);
  EXPECT_DOUBLE_EQ(point.step_seconds, 0.01);
  EXPECT_DOUBLE_EQ(point.speed_up, 1);
  EXPECT_DOUBLE_EQ(point.efficiency, 1);
  EXPECT_EQ(point.communication_seconds, 0);
  EXPECT_EQ(point.hidden, 1);
  EXPECT_EQ(point.bound, Bound::compute);
}

TEST(ScaleModel, APerfectNetworkScalesPerfectly) {
  Cluster perfect{.chunk_bytes = chunk};
  const Workload work = work_of({{5000, 0.5}, {7000, 1}}, 0.1);
  for (const int64_t nodes : {2, 7, 256}) {
    EXPECT_DOUBLE_EQ(price(work, perfect, nodes).speed_up, static_cast<double>(nodes));
    EXPECT_DOUBLE_EQ(price(work, perfect, nodes).efficiency, 1);
  }
  perfect.strong = true;
  EXPECT_DOUBLE_EQ(price(work_of({{5000, 1}}), perfect, 8).step_seconds, 0.01 / 8);
}

// 2 (P - 1) links for the first chunk, and one more link's time for every other.
TEST(ScaleModel, OneBucketIsTheClosedFormula) {
  const double latency = 20e-6, bandwidth = 1e8, link = latency + chunk / bandwidth;
  Cluster cluster = cluster_of(latency, bandwidth);
  cluster.overlap = false;
  for (const int64_t nodes : {2, 3, 16}) {
    for (const int64_t chunks : {1, 2, 50}) {
      const ScalePoint point = price(work_of({{chunks * chunk, 0.4}}, 0.2), cluster, nodes);
      const double expected = static_cast<double>(2 * (nodes - 1) + chunks - 1) * link;
      EXPECT_NEAR(point.communication_seconds, expected, 1e-12);
      EXPECT_NEAR(point.step_seconds, 0.01 + expected, 1e-12);
      EXPECT_NEAR(point.hidden, 0, 1e-9);
    }
  }
}

TEST(ScaleModel, InstancesOfANodeUseItsOwnLinks) {
  Cluster cluster = cluster_of(1e-3, 1e9);
  cluster.local = {1e-6, 1e9};
  cluster.instances_per_node = 4;
  // Of the 11 links of three nodes two cross the network.
  const double bytes = 2 * 11 * chunk / 1e9;
  EXPECT_NEAR(price(work_of({{chunk, 1}}), cluster, 3).communication_seconds,
              2 * (2 * 1e-3 + 9 * 1e-6) + bytes, 1e-12);
  EXPECT_NEAR(price(work_of({{chunk, 1}}), cluster, 1).communication_seconds,
              2 * 3 * (1e-6 + chunk / 1e9), 1e-12);
  EXPECT_EQ(price(work_of({{chunk, 1}}), cluster, 3).instances, 12);
}

TEST(ScaleModel, AnEarlyBucketIsHidden) {
  const Cluster cluster = cluster_of(10e-6, 1e9);
  const ScalePoint early = price(work_of({{chunk, 0.5}}), cluster, 8);
  EXPECT_DOUBLE_EQ(early.step_seconds, 0.01);
  EXPECT_DOUBLE_EQ(early.hidden, 1);
  const ScalePoint late = price(work_of({{chunk, 1}}), cluster, 8);
  EXPECT_NEAR(late.step_seconds, 0.01 + late.communication_seconds, 1e-12);
}

TEST(ScaleModel, TheUpdateWaitsForTheLastBucketAndIsNotShared) {
  Cluster cluster = cluster_of(1e-3, 1e9);
  cluster.strong = true;
  const ScalePoint point = price(work_of({{chunk, 1}}, 0.1), cluster, 2);
  EXPECT_NEAR(point.compute_seconds, 0.0045 + 0.001, 1e-12);
  EXPECT_NEAR(point.step_seconds, 0.0055 + 2 * (1e-3 + 1e-6), 1e-12);
  EXPECT_NEAR(point.speed_up, 0.01 / point.step_seconds, 1e-12);
  EXPECT_NEAR(point.efficiency, point.speed_up / 2, 1e-12);
}

TEST(ScaleModel, SaysWhatBounds) {
  const Workload work = work_of({{100 * chunk, 1}});
  EXPECT_EQ(price(work, cluster_of(1e-9, 1e12), 8).bound, Bound::compute);
  EXPECT_EQ(price(work, cluster_of(1e-3, 1e12), 8).bound, Bound::latency);
  EXPECT_EQ(price(work, cluster_of(1e-9, 1e6), 8).bound, Bound::bandwidth);
}

TEST(ScaleModel, RefusesWhatTakesTooLong) {
  Cluster cluster = cluster_of(0, 1e9);
  EXPECT_FALSE(can_price(work_of({{int64_t{1} << 40, 1}}), cluster, 2));
  try {
    price(work_of({{int64_t{1} << 40, 1}}), cluster, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "chunks of 1000 bytes are too many to work out for 2 instances; give larger ones "
              "with --chunk, or fewer nodes");
  }
  EXPECT_TRUE(can_price(work_of({{1000 * chunk, 1}}), cluster, 1 << 16));
  cluster.instances_per_node = 2;
  EXPECT_FALSE(can_price(work_of({{1000 * chunk, 1}}), cluster, 1 << 16));
}

// --- random chains ---

struct Case {
  Workload work;
  Cluster cluster;
  int64_t nodes;
};

class RandomChains : public ::testing::TestWithParam<uint32_t> {
 protected:
  double uniform(double low, double high) {
    return std::uniform_real_distribution(low, high)(generator_);
  }
  int64_t whole(int64_t low, int64_t high) {
    return std::uniform_int_distribution(low, high)(generator_);
  }

  Case draw() {
    std::vector<Bucket> buckets;
    for (int64_t count = whole(1, 12); count > 0; --count) {
      buckets.push_back({whole(1, 20 * chunk), uniform(0, 1)});
    }
    std::sort(buckets.begin(), buckets.end(),
              [](const Bucket& a, const Bucket& b) { return a.ready < b.ready; });
    Cluster cluster = cluster_of(uniform(0, 1e-3), uniform(1e6, 1e8));
    cluster.local = {uniform(0, 1e-4), uniform(1e6, 1e9)};
    cluster.instances_per_node = whole(1, 4);
    cluster.strong = whole(0, 1) == 1;
    return {work_of(std::move(buckets), uniform(0, 0.3)), cluster, whole(2, 9)};
  }

 private:
  std::mt19937 generator_{GetParam()};
};

// Links with queues before them, as they would be built: what arrives waits for its turn.
class ChainOfQueues {
 public:
  ChainOfQueues(const Cluster& cluster, int64_t instances) : cluster_(cluster) {
    for (int64_t rank = 0; rank + 1 < instances; ++rank) links_.push_back(link_after(rank));
    for (int64_t rank = instances - 1; rank > 0; --rank) links_.push_back(link_after(rank - 1));
  }

  double run(const std::vector<Chunk>& chunks) {
    for (const Chunk& one : chunks) events_.push({one.ready, number_++, 0, one.bytes, false});
    double last = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      last = event.time;
      if (event.leaves) {
        start_next(event);
      } else {
        arrive(event);
      }
    }
    return last;
  }

 private:
  struct Event {
    double time;
    int64_t number;  // of events at the same time, the older one first
    size_t link;
    int64_t bytes;
    bool leaves;

    bool operator>(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };
  struct Station {
    Link link;
    bool busy = false;
    std::deque<int64_t> waiting = {};
  };

  Station link_after(int64_t rank) const {
    const int64_t k = cluster_.instances_per_node;
    return {rank / k == (rank + 1) / k ? cluster_.local : cluster_.network};
  }

  void arrive(const Event& event) {
    Station& station = links_[event.link];
    if (station.busy) {
      station.waiting.push_back(event.bytes);
    } else {
      serve(event.time, event.link, event.bytes);
    }
  }

  void serve(double now, size_t link, int64_t bytes) {
    links_[link].busy = true;
    events_.push({now + links_[link].link.seconds_for(bytes), number_++, link, bytes, true});
  }

  void start_next(const Event& event) {
    Station& station = links_[event.link];
    station.busy = false;
    if (!station.waiting.empty()) {
      serve(event.time, event.link, station.waiting.front());
      station.waiting.pop_front();
    }
    if (event.link + 1 < links_.size()) {
      arrive({event.time, 0, event.link + 1, event.bytes, false});
    }
  }

  const Cluster& cluster_;
  std::vector<Station> links_;  // and down again
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t number_ = 0;
};

TEST_P(RandomChains, AgreeWithQueuesOfEvents) {
  const Case one = draw();
  std::vector<Chunk> chunks;
  for (const Bucket& bucket : one.work.buckets) {
    for (int64_t sent = 0; sent < bucket.bytes; sent += chunk) {
      chunks.push_back({std::min(chunk, bucket.bytes - sent), bucket.ready * 0.01});
    }
  }
  const int64_t instances = one.nodes * one.cluster.instances_per_node;
  const double expected = ChainOfQueues(one.cluster, instances).run(chunks);
  EXPECT_NEAR(last_arrival(chunks, one.cluster, instances), expected, 1e-9 * expected);
}

TEST_P(RandomChains, KeepTheirPromises) {
  Case one = draw();
  const ScalePoint point = price(one.work, one.cluster, one.nodes);
  EXPECT_GE(point.step_seconds, point.compute_seconds);
  EXPECT_GE(point.hidden, -1e-9);
  EXPECT_LE(point.hidden, 1 + 1e-9);
  EXPECT_LE(point.efficiency, 1 + 1e-9);
  const double rounding = 1e-12;
  Case slower = one;
  slower.cluster.network.latency *= 1.5;
  EXPECT_GE(price(slower.work, slower.cluster, one.nodes).step_seconds,
            point.step_seconds - rounding);
  slower = one;
  slower.cluster.network.bandwidth /= 1.5;
  EXPECT_GE(price(slower.work, slower.cluster, one.nodes).step_seconds,
            point.step_seconds - rounding);
  slower = one;
  slower.cluster.overlap = false;
  EXPECT_GE(price(slower.work, slower.cluster, one.nodes).step_seconds,
            point.step_seconds - rounding);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomChains, ::testing::Range(0U, 200U));

}  // namespace
}  // namespace tessera
