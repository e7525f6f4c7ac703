#include "tessera/launch/topology_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tessera/launch/core_share.h"
#include "tessera/launch/hosts.h"

namespace tessera {
namespace {

constexpr size_t columns = 6;
using Row = std::array<std::string, columns>;

std::string first_to_last(int64_t first, int64_t count) {
  return count == 1 ? std::to_string(first) : fmt::format("{}..{}", first, first + count - 1);
}

// What is not decided here is left open.
std::string cores_of(const Launch& launch, const Instance& instance,
                     const std::vector<int>& cores) {
  if (!binds_to_cores(launch.options)) return "any";
  if (!is_this_host(instance.host)) return "its share";
  return core_list(share_of_cores(cores, instance.index_on_host, instance.instances_on_host));
}

std::vector<Row> rows_of(const Launch& launch, const std::vector<int>& cores,
                         const std::string& threads) {
  std::vector<Row> rows = {{"host", "instance", "replicas", "IPUs", "threads", "cores"}};
  for (const Instance& instance : launch.instances) {
    const bool says_own = launch.options.threads_per_instance || threads.empty();
    const int64_t own = threads_of(launch.options, instance, launch.cpus);
    const int64_t ipus = instance.replicas * launch.options.ipus_per_replica;
    rows.push_back({instance.index_on_host == 0 ? instance.host : "",
                    std::to_string(instance.index),
                    first_to_last(instance.first_replica, instance.replicas),
                    launch.options.offline ? "none" : std::to_string(ipus),
                    says_own ? std::to_string(own) : threads, cores_of(launch, instance, cores)});
  }
  return rows;
}

using Widths = std::array<size_t, columns>;

std::string rule(const Widths& widths, const char* left, const char* middle, const char* right) {
  std::string text = left;
  for (size_t i = 0; i < columns; ++i) {
    for (size_t n = 0; n < widths[i] + 2; ++n) text += "─";
    text += i + 1 < columns ? middle : right;
  }
  return text + "\n";
}

std::string line(const Row& row, const Widths& widths) {
  std::string text = "│";
  for (size_t i = 0; i < columns; ++i) text += fmt::format(" {:<{}} │", row[i], widths[i]);
  return text + "\n";
}

}  // namespace

std::string topology_table(const Launch& launch, const std::vector<int>& cores,
                           const std::string& threads) {
  const std::vector<Row> rows = rows_of(launch, cores, threads);
  Widths widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = rule(widths, "┌", "┬", "┐") + line(rows.front(), widths);
  for (size_t i = 1; i < rows.size(); ++i) {
    if (!rows[i].front().empty()) text += rule(widths, "├", "┼", "┤");
    text += line(rows[i], widths);
  }
  return text + rule(widths, "└", "┴", "┘");
}

}  // namespace tessera
