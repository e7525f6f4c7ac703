#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/json_text.h"
#include "tessera/cli/quantities.h"
#include "tessera/cli/scale_report.h"

namespace tessera {
namespace {

int64_t bytes_of(const std::vector<Bucket>& buckets) {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.bytes;
  return sum;
}

std::string link_text(const Link& link) {
  return fmt::format("{}, {}", seconds_text(link.latency), bandwidth_text(link.bandwidth));
}

// What was given and what was assumed: without it the table means nothing.
std::string header_text(const ScaleReport& report) {
  const Cluster& cluster = report.cluster;
  const size_t count = report.workload.buckets.size();
  std::string text = fmt::format(
      "one instance: {} a step{}\ngradients: {} in {} bucket{}, {}\nnetwork: {}; chunks of {} "
      "at most, along a chain\n",
      seconds_text(report.workload.step_seconds),
      report.samples ? fmt::format(", {} samples", report.samples) : "",
      bytes_text(bytes_of(report.workload.buckets)), count, count == 1 ? "" : "s", report.source,
      link_text(cluster.network), bytes_text(cluster.chunk_bytes));
  if (cluster.instances_per_node > 1) {
    text += fmt::format("within a node, {} instances: {}\n", cluster.instances_per_node,
                        link_text(cluster.local));
  }
  text += cluster.overlap ? fmt::format("overlap: {}\n", report.assumed)
                          : "no overlap: all buckets leave when backward has ended\n";
  if (cluster.strong) {
    text += "strong scaling: instances share the batch and, at best, the time that it takes\n";
  }
  return text;
}

std::string rate_text(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second < 100 ? 2 : 0);
}

// What is sent and how much of it is hidden; an instance alone sends nothing.
std::string communication_text(const ScalePoint& point) {
  if (point.instances == 1) return fmt::format("{:>10}{:>7}", "-", "-");
  return fmt::format("{:>10}{:>5.0f} %", seconds_column(point.communication_seconds),
                     100 * point.hidden);
}

std::string table_text(const ScaleReport& report) {
  const bool rated = report.samples > 0;
  std::string text = fmt::format("{:>5}{:>10}{:>10}{}{:>9}{:>11}{:>10}{:>7} {}\n", "nodes",
                                 "instances", "step", rated ? " samples/s" : "", "speed-up",
                                 "efficiency", "sending", "hidden", "bound");
  for (const ScalePoint& point : report.points) {
    text += fmt::format(
        "{:>5}{:>10}{:>10}{}{:>9.2f}{:>9.1f} %{} {}\n", point.nodes, point.instances,
        seconds_column(point.step_seconds),
        rated ? fmt::format("{:>10}", rate_text(samples_per_second(report, point))) : "",
        point.speed_up, 100 * point.efficiency, communication_text(point), name_of(point.bound));
  }
  return text;
}

// Bars of the speed-up, one for each number of nodes, with a stroke where it would be ideal. The
// speed-up doubles from mark to mark: where nodes do too, the ideal is a straight line.
class Plot {
 public:
  explicit Plot(const ScaleReport& report) : points_(report.points) {
    double least = 1, most = 1;
    for (const ScalePoint& point : points_) {
      least = std::min(least, point.speed_up);
      most = std::max({most, point.speed_up, static_cast<double>(point.instances)});
    }
    lowest_ = static_cast<int>(std::floor(std::log2(least))) - 1;  // so that a bar of it shows
    const int doublings = std::max(1, static_cast<int>(std::ceil(std::log2(most))) - lowest_);
    per_row_ = (doublings + most_rows - 1) / most_rows;
    rows_per_mark_ = std::max(1, most_rows / doublings);
    rows_ = (doublings + per_row_ - 1) / per_row_ * rows_per_mark_;
    const int columns = static_cast<int>(points_.size());
    column_ = std::clamp(most_width / columns, 2, 7);
  }

  std::string text() const {
    std::string out = "speed-up, and \u2594 where it would be ideal\n";
    for (int row = rows_ - 1; row >= 0; --row) out += line(row);
    return out + nodes_line();
  }

 private:
  static constexpr int most_rows = 18, most_width = 70;

  // In eighths of a row, from the lowest mark.
  int height(double value) const {
    const double marks = (std::log2(value) - lowest_) / per_row_;
    return static_cast<int>(std::lround(marks * rows_per_mark_ * 8));
  }

  static std::string repeated(std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  }

  // The mark stands where a bar of its height ends.
  std::string mark(int row) const {
    if ((row + 1) % rows_per_mark_ != 0) return std::string(7, ' ');
    return fmt::format("{:>7g}", std::exp2(lowest_ + (row + 1) / rows_per_mark_ * per_row_));
  }

  std::string line(int row) const {
    static constexpr std::string_view eighths[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                                   "\u2585", "\u2586", "\u2587", "\u2588"};
    std::string out = mark(row) + " \u2502";
    for (const ScalePoint& point : points_) {
      const int filled = std::clamp(height(point.speed_up) - 8 * row, 0, 8);
      const int ideal = height(static_cast<double>(point.instances));
      const bool stroke = filled == 0 && (ideal - 1) / 8 == row;
      out += ' ';
      out += repeated(stroke ? "\u2594" : eighths[filled], column_ - 1);
    }
    return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  }

  // As many numbers as there is room for.
  std::string nodes_line() const {
    std::string out = "  nodes  ";
    size_t end = 0;
    for (size_t i = 0; i < points_.size(); ++i) {
      const std::string number = fmt::format("{}", points_[i].nodes);
      const size_t start = 9 + i * static_cast<size_t>(column_) + 1;
      if (start < end + 1) continue;
      out.resize(start, ' ');
      out += number;
      end = out.size();
    }
    return out + "\n";
  }

  const std::vector<ScalePoint>& points_;
  int lowest_ = 0, per_row_ = 1, rows_per_mark_ = 1, rows_ = 1, column_ = 1;
};

// --- as JSON ---

template <typename T>
std::string member(std::string_view name, const T& json) {
  return fmt::format("{}: {}", json_string(name), json);
}

std::string object(const std::vector<std::string>& members) {
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

std::string list(const std::vector<std::string>& elements) {
  return fmt::format("[{}]", fmt::join(elements, ",\n    "));
}

std::string link_json(const Link& link) {
  return object({member("latency_seconds", link.latency),
                 member("bandwidth_bytes_per_second", link.bandwidth)});
}

std::string buckets_json(const std::vector<Bucket>& buckets) {
  std::vector<std::string> elements;
  elements.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    elements.push_back(object({member("bytes", bucket.bytes), member("ready", bucket.ready)}));
  }
  return list(elements);
}

std::string point_json(const ScaleReport& report, const ScalePoint& point) {
  std::vector<std::string> members = {member("nodes", point.nodes),
                                      member("instances", point.instances),
                                      member("step_seconds", point.step_seconds),
                                      member("compute_seconds", point.compute_seconds),
                                      member("communication_seconds", point.communication_seconds),
                                      member("hidden", point.hidden),
                                      member("speed_up", point.speed_up),
                                      member("efficiency", point.efficiency),
                                      member("bound", json_string(name_of(point.bound)))};
  if (report.samples) {
    members.push_back(member("samples_per_second", samples_per_second(report, point)));
  }
  return object(members);
}

}  // namespace

double samples_per_second(const ScaleReport& report, const ScalePoint& point) {
  return static_cast<double>(report.samples) / report.workload.step_seconds * point.speed_up;
}

std::string scale_as_text(const ScaleReport& report) {
  return fmt::format("{}\n{}\n{}\n{}\n", header_text(report), table_text(report),
                     Plot(report).text(), advice(report));
}

std::string scale_as_json(const ScaleReport& report) {
  const Cluster& cluster = report.cluster;
  std::vector<std::string> points;
  for (const ScalePoint& point : report.points) points.push_back(point_json(report, point));
  const std::vector<std::string> members = {
      member("step_seconds", report.workload.step_seconds),
      member("update_share", report.workload.update_share),
      member("samples", report.samples ? fmt::format("{}", report.samples) : "null"),
      member("source", json_string(report.source)),
      member("assumed", json_string(report.assumed)),
      member("network", link_json(cluster.network)),
      member("local", link_json(cluster.local)),
      member("instances_per_node", cluster.instances_per_node),
      member("chunk_bytes", cluster.chunk_bytes),
      member("overlap", cluster.overlap),
      member("strong", cluster.strong),
      member("buckets", buckets_json(report.workload.buckets)),
      member("points", list(points)),
      member("advice", json_string(advice(report)))};
  return fmt::format("{{\n  {}\n}}\n", fmt::join(members, ",\n  "));
}

}  // namespace tessera
