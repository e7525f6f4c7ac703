#include "tessera/runtime/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/split_names.h"
#include "tessera/passes/pipeline.h"

namespace tessera {
namespace {

int64_t milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start)
      .count();
}

void log_passes(const std::vector<PassReport>& reports) {
  for (const PassReport& report : reports) {
    log(LogLevel::debug, "pass {}: {} -> {} nodes in {} us", report.name, report.nodes_before,
        report.nodes_after, report.microseconds);
  }
}

// The last lines of a text: as many as POPTORCH_MAX_GRAPH_LEN says, all where it is not set or not
// above zero.
std::string_view shown_lines(std::string_view text) {
  const char* variable = std::getenv("POPTORCH_MAX_GRAPH_LEN");
  const long lines = variable ? std::strtol(variable, nullptr, 10) : 0;
  if (lines <= 0) return text;
  size_t start = text.ends_with('\n') ? text.size() - 1 : text.size();
  for (long i = 0; i < lines && start != std::string_view::npos && start > 0; ++i) {
    start = text.rfind('\n', start - 1);
  }
  return start == std::string_view::npos || start == 0 ? text : text.substr(start + 1);
}

// Printing a large program takes longer than compiling it.
void log_programs(const Graph& graph, const cpu::Plan& plan) {
  if (log_level() > LogLevel::trace) return;
  log(LogLevel::trace, "{}", shown_lines(print(graph, {.elide_blobs_over = 64})));
  log(LogLevel::trace, "{}", print(plan));
}

void log_host_calls(const Graph& graph) {
  for (const auto& [overload, nodes] : host_calls(graph)) {
    log(LogLevel::info, "not native: {} runs PyTorch's own kernel, {} node{}", overload, nodes,
        nodes == 1 ? "" : "s");
  }
}

bool precise_by_environment() {
  const char* text = std::getenv("TESSERA_PRECISION");
  const std::string_view word = text ? text : "";
  check(word.empty() || word == "precise" || word == "fast", ErrorKind::value,
        "TESSERA_PRECISION must be 'precise' or 'fast', got '{}'.", word);
  return word == "precise";
}

bool autotune_by_environment() {
  const char* text = std::getenv("TESSERA_AUTOTUNE");
  const std::string_view word = text ? text : "";
  check(word.empty() || word == "0" || word == "1", ErrorKind::value,
        "TESSERA_AUTOTUNE must be 0 or 1, got '{}'.", word);
  return word == "1";
}

void check_pass(std::string_view name) {
  std::vector<std::string_view> names = cpu::rewrite_names();
  for (const Pass& pass : pipeline()) {
    if (!pass.required) names.push_back(pass.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  check(std::binary_search(names.begin(), names.end(), name), ErrorKind::value,
        "TESSERA_DISABLE_PASSES must name passes that can be turned off, got '{}'; there are {}.",
        name, fmt::join(names, ", "));
}

// Read anew for every program, as TESSERA_DISABLE_KERNELS is: a tool for finding a bad pass.
std::vector<std::string> disabled_passes(const CompileOptions& options) {
  std::vector<std::string> names = options.disabled_passes;
  const char* text = std::getenv("TESSERA_DISABLE_PASSES");
  if (!text || !*text) return names;
  for (const std::string& name : split_names(text)) {
    check_pass(name);
    names.push_back(name);
  }
  return names;
}

}  // namespace

std::shared_ptr<const Executable> compile(Graph graph, const CompileOptions& options) {
  StepSignature signature = signature_of(graph);
  return compile(std::move(graph), std::move(signature), options);
}

std::shared_ptr<const Executable> compile(Graph graph, StepSignature signature,
                                          const CompileOptions& options) {
  const ErrorContext where("compiling '{}'", graph.name);
  const auto start = std::chrono::steady_clock::now();
  const auto progress = [&](int percent) {
    if (options.progress) options.progress(percent);
  };

  progress(0);
  verify(graph);

  progress(10);
  const std::vector<std::string> disabled = disabled_passes(options);
  log_passes(run_passes(graph, pipeline(), {.disabled = disabled}));
  verify(graph);

  progress(40);
  const bool precise = options.precise ? *options.precise : precise_by_environment();
  const bool autotune = options.autotune ? *options.autotune : autotune_by_environment();
  cpu::Plan plan = cpu::lower(graph, {.disabled = disabled,
                                      .keep_operators = options.keep_operators,
                                      .precise = precise,
                                      .autotune = autotune,
                                      .tuned = options.tuned_kernels});
  log_programs(graph, plan);
  log(LogLevel::info, "compiled '{}' in {} ms: {} nodes, {} + {} calls; {}", graph.name,
      milliseconds_since(start), graph.node_count(), plan.update_begin,
      plan.calls.size() - plan.update_begin, print(plan.memory));
  log_host_calls(graph);

  progress(100);
  return std::make_shared<Executable>(std::move(graph), std::move(plan), std::move(signature));
}

}  // namespace tessera
