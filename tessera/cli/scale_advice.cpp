#include <fmt/format.h>

#include <algorithm>

#include "tessera/cli/quantities.h"
#include "tessera/cli/scale_report.h"

namespace tessera {
namespace {

// Something to change, and how many times the samples a second it gives.
struct Remedy {
  std::string what;
  double gain;
};

// Tries changes at the largest number of nodes.
class Trials {
 public:
  explicit Trials(const ScaleReport& report) : report_(report), now_(report.points.back()) {
    try_network();
    try_chunks();
    try_overlap();
    if (!report.cluster.strong) try_accumulation();
    std::stable_sort(remedies_.begin(), remedies_.end(),
                     [](const Remedy& a, const Remedy& b) { return a.gain > b.gain; });
  }

  const std::vector<Remedy>& remedies() const { return remedies_; }

 private:
  double gain(const Workload& workload, const Cluster& cluster) const {
    if (!can_price(workload, cluster, now_.nodes)) return 0;
    return now_.step_seconds / price(workload, cluster, now_.nodes).step_seconds;
  }

  void add(std::string what, double gain) {
    if (gain >= 1 + noticeable) remedies_.push_back({std::move(what), gain});
  }

  void try_network() {
    Cluster wide = report_.cluster, prompt = report_.cluster;
    wide.network.bandwidth *= 2;
    prompt.network.latency /= 2;
    add("twice the bandwidth", gain(report_.workload, wide));
    add("half the latency", gain(report_.workload, prompt));
  }

  // Long chains want small chunks, which fill them sooner; a high latency wants few large ones.
  void try_chunks() {
    Cluster best = report_.cluster;
    double best_gain = 1;
    for (int64_t bytes = 1 << 12; bytes <= 1 << 24; bytes *= 2) {
      Cluster other = report_.cluster;
      other.chunk_bytes = bytes;
      const double other_gain = gain(report_.workload, other);
      if (other_gain <= best_gain) continue;
      best = other;
      best_gain = other_gain;
    }
    add(fmt::format("chunks of {}", bytes_text(best.chunk_bytes)), best_gain);
  }

  void try_overlap() {
    Cluster other = report_.cluster;
    other.overlap = true;
    add("sending while backward goes on", gain(report_.workload, other));
  }

  // Two micro-batches for each update: as much is sent, and twice as much is computed.
  void try_accumulation() {
    Workload other = report_.workload;
    const double update = other.step_seconds * other.update_share;
    other.step_seconds = 2 * other.step_seconds - update;
    other.update_share = update / other.step_seconds;
    for (Bucket& bucket : other.buckets) bucket.ready = (1 + bucket.ready) / 2;
    add("twice the micro-batches for an update", 2 * gain(other, report_.cluster));
  }

  const ScaleReport& report_;
  const ScalePoint& now_;
  std::vector<Remedy> remedies_;
};

std::string plural(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// How far communication costs nothing that is noticed.
std::string how_far(const ScaleReport& report) {
  const ScalePoint* hidden = nullptr;
  for (const ScalePoint& point : report.points) {
    if (point.bound != Bound::compute) {
      if (hidden) break;
      return fmt::format("Communication is noticed on {} already", plural(point.nodes, "node"));
    }
    if (point.instances > 1) hidden = &point;
  }
  return fmt::format("Communication is hidden up to {}", plural(hidden->nodes, "node"));
}

// The best of the remedies.
std::string what_helps(const ScaleReport& report) {
  constexpr size_t most = 3;
  const Trials trials(report);
  std::string text;
  for (size_t i = 0; i < std::min(most, trials.remedies().size()); ++i) {
    const Remedy& remedy = trials.remedies()[i];
    text += text.empty() ? fmt::format("{} would give {:.2f} times the samples a second",
                                       remedy.what, remedy.gain)
                         : fmt::format(", {} {:.2f} times", remedy.what, remedy.gain);
  }
  return text.empty() ? "only fewer nodes would help" : text;
}

}  // namespace

std::string advice(const ScaleReport& report) {
  const ScalePoint& last = report.points.back();
  if (last.instances == 1) return "One instance has nobody to send anything to.";
  if (last.bound == Bound::compute) {
    return fmt::format("{}; only a faster step would help.", how_far(report));
  }
  return fmt::format("{}; {} bounds the step on {}, where {}.", how_far(report),
                     name_of(last.bound), plural(last.nodes, "node"), what_helps(report));
}

}  // namespace tessera
