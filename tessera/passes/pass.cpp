#include "tessera/passes/pass.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Each once, in the order of the passes.
std::vector<std::string_view> names_of(std::span<const Pass> passes, bool with_required) {
  std::vector<std::string_view> names;
  for (const Pass& pass : passes) {
    if (pass.required && !with_required) continue;
    if (!contains(names, pass.name)) names.push_back(pass.name);
  }
  return names;
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
  check_disabled(options.disabled, passes);
  std::vector<PassReport> reports;
  for (const Pass& pass : passes) {
    if (contains(options.disabled, pass.name)) continue;
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

const Pass& find_pass(std::span<const Pass> passes, std::string_view name) {
  for (const Pass& pass : passes) {
    if (pass.name == name) return pass;
  }
  fail(ErrorKind::value, "there is no pass '{}'; there are {}", name,
       fmt::join(names_of(passes, true), ", "));
}

void check_disabled(std::span<const std::string> names, std::span<const Pass> passes) {
  const std::vector<std::string_view> known = names_of(passes, false);
  for (const std::string& name : names) {
    check(contains(known, name), ErrorKind::value,
          "the disabled passes (TESSERA_DISABLE_PASSES) must be passes that can be turned off, got "
          "'{}'; there are {}.",
          name, fmt::join(known, ", "));
  }
}

}  // namespace tessera
