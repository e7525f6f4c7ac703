#include "tessera/runtime/compile.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/lower/rewrites.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/host_call.h"
#include "tessera/passes/pipeline.h"

namespace tessera {
namespace {

int64_t milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start)
      .count();
}

// All of them where the number is 0.
std::string_view last_lines(std::string_view text, int64_t lines) {
  if (lines == 0) return text;
  size_t start = text.ends_with('\n') ? text.size() - 1 : text.size();
  for (int64_t i = 0; i < lines && start != std::string_view::npos && start > 0; ++i) {
    start = text.rfind('\n', start - 1);
  }
  return start == std::string_view::npos || start == 0 ? text : text.substr(start + 1);
}

// Printing a large program takes longer than compiling it.
void log_programs(const Graph& graph, const cpu::Plan& plan, int64_t lines) {
  if (log_level() > LogLevel::trace) return;
  log(LogLevel::trace, "{}", last_lines(print(graph, {.elide_blobs_over = 64}), lines));
  log(LogLevel::trace, "{}", print(plan));
}

void log_host_calls(const Graph& graph) {
  for (const auto& [overload, nodes] : host_calls(graph)) {
    log(LogLevel::info, "not native: {} runs PyTorch's own kernel, {} node{}", overload, nodes,
        nodes == 1 ? "" : "s");
  }
}

// How the passes of one list run. The disabled names are of all lists.
PassOptions options_for(std::span<const Pass> passes, const CompileOptions& options) {
  PassOptions result{.verify = options.verify_passes};
  const auto& disabled = options.disabled_passes;
  const auto is_in_list = [&](const std::string& name) {
    return std::any_of(passes.begin(), passes.end(),
                       [&](const Pass& pass) { return pass.name == name; });
  };
  std::copy_if(disabled.begin(), disabled.end(), std::back_inserter(result.disabled), is_in_list);
  return result;
}

}  // namespace

std::vector<Pass> passes_of_a_compilation() {
  std::vector<Pass> all = pipeline();
  for (Pass& rewrite : cpu::rewrites()) all.push_back(std::move(rewrite));
  return all;
}

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
  check_disabled(options.disabled_passes, passes_of_a_compilation());
  const std::vector<Pass> passes = pipeline(options.target.level, options.halves);
  run_passes(graph, passes, options_for(passes, options));
  verify(graph);

  progress(40);
  cpu::Plan plan =
      cpu::lower(graph, {.rewrites = options_for(cpu::rewrites(options.target), options),
                         .keep_operators = options.keep_operators,
                         .target = options.target,
                         .threads = options.threads,
                         .tuned = options.tuned_kernels});
  log_programs(graph, plan, options.logged_lines);
  log(LogLevel::info, "compiled '{}' in {} ms: {} nodes, {} + {} calls; {}", graph.name,
      milliseconds_since(start), graph.node_count(), plan.update_begin,
      plan.calls.size() - plan.update_begin, print(plan.memory));
  log_host_calls(graph);

  progress(100);
  return std::make_shared<Executable>(std::move(graph), std::move(plan), std::move(signature));
}

}  // namespace tessera
