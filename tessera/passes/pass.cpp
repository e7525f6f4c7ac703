#include "tessera/passes/pass.h"

#include <algorithm>
#include <chrono>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

bool is_disabled(const Pass& pass, const PassOptions& options) {
  const auto& names = options.disabled;
  if (std::find(names.begin(), names.end(), pass.name) == names.end()) return false;
  check(!pass.required, "the pass '{}' cannot be turned off: {}", pass.name, pass.reason);
  return true;
}

PassReport run_one(Graph& graph, const Pass& pass) {
  const ErrorContext where("pass {}", pass.name);
  PassReport report{.name = std::string(pass.name), .nodes_before = graph.node_count()};
  const auto start = Clock::now();
  pass.run(graph);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
  report.microseconds = took.count();
  report.nodes_after = graph.node_count();
  return report;
}

}  // namespace

std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass> passes,
                                   const PassOptions& options) {
  std::vector<PassReport> reports;
  for (const Pass& pass : passes) {
    if (is_disabled(pass, options)) continue;
    reports.push_back(run_one(graph, pass));
    const PassReport& report = reports.back();
    log(LogLevel::debug, "pass {}: {} -> {} nodes in {} us", report.name, report.nodes_before,
        report.nodes_after, report.microseconds);
    if (options.verify) {
      const ErrorContext where("checking the graph after pass {}", pass.name);
      verify(graph);
    }
    if (options.dump) options.dump(pass, graph);
  }
  return reports;
}

}  // namespace tessera
