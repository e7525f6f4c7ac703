#include "tessera/cli/scale.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/replace_file.h"

namespace tessera {
namespace {

constexpr int64_t most_nodes = 1 << 16, most_instances_per_node = 1 << 10;
constexpr size_t most_sizes = 32;  // what the plot has room for

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = list.find(',');
    parts.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

// 0 where it is no number.
int64_t number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

void check_between(int64_t value, int64_t most, std::string_view what) {
  check(value >= 1 && value <= most, ErrorKind::value, "{} must be from 1 to {}, not {}", what,
        most, value);
}

// Beyond these, times no longer are numbers.
void check_seconds(double seconds, double least, std::string_view what) {
  constexpr double most = 1e6;
  check(seconds >= least && seconds <= most, ErrorKind::value,
        "{} must be from {} to {} seconds, not {}", what, least, most, seconds);
}

void check_link(const Link& link, std::string_view where) {
  check_seconds(link.latency, 0, fmt::format("the latency {}", where));
  check(link.bandwidth >= 1, ErrorKind::value,
        "the bandwidth {} must be at least one byte a second", where);
}

void check_makes_sense(const ScaleReport& report) {
  constexpr int64_t most_chunk = int64_t{1} << 40, most_samples = int64_t{1} << 40;
  check_seconds(report.workload.step_seconds, 1e-9, "the step's time");
  check_link(report.cluster.network, "between nodes");
  check_link(report.cluster.local, "within a node");
  check_between(report.cluster.instances_per_node, most_instances_per_node,
                "the number of instances on a node");
  check_between(report.cluster.chunk_bytes, most_chunk, "a chunk's bytes");
  if (report.samples != 0) check_between(report.samples, most_samples, "the number of samples");
  for (const Bucket& bucket : report.workload.buckets) {
    check(bucket.bytes >= 1, ErrorKind::value, "a bucket must have at least one byte, not {}",
          bucket.bytes);
  }
}

}  // namespace

std::vector<int64_t> parse_nodes(std::string_view text) {
  std::vector<int64_t> nodes;
  bool doubling = false;
  for (const std::string_view part : parts_of(text)) {
    const int64_t last = nodes.empty() ? 0 : nodes.back();
    if (part == "..." && last > 0 && !doubling) {
      doubling = true;
      continue;
    }
    const int64_t number = number_of(part);
    check(number > last && number <= most_nodes, ErrorKind::value,
          "'{}' is no list of nodes; rising numbers from 1 to {} were wanted, such as "
          "1,2,3 or 1,2,4,...,256",
          text, most_nodes);
    for (int64_t next = 2 * last; doubling && next < number; next *= 2) nodes.push_back(next);
    nodes.push_back(number);
    doubling = false;
  }
  check(!doubling, ErrorKind::value, "'{}' does not say where the doubling of nodes ends", text);
  check(nodes.size() <= most_sizes, ErrorKind::value,
        "at most {} numbers of nodes can be priced at once, not {}", most_sizes, nodes.size());
  return nodes;
}

void price_all(ScaleReport& report, const std::vector<int64_t>& nodes) {
  check_makes_sense(report);
  for (const int64_t count : nodes) {
    report.points.push_back(price(report.workload, report.cluster, count));
  }
}

void write_plot(const std::string& path, const ScaleReport& report) {
  const bool written = replace_file(path, scale_as_svg(report));  // before errno is looked at
  check(written, ErrorKind::value, "cannot write the plot to '{}': {}", path, std::strerror(errno));
}

}  // namespace tessera
