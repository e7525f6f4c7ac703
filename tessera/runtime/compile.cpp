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

// What lowering cannot do without. A step Graph has had these; to one from a file, which may say
// that it has and has not, they do what they must.
std::vector<Pass> required_passes() {
  std::vector<Pass> passes = pipeline();
  std::erase_if(passes, [](const Pass& pass) { return !pass.required; });
  return passes;
}

// What every way to an Executable ends in, with the clock that began with it.
class Compilation {
 public:
  // `done` says in the log what was done: "compiled".
  Compilation(std::string_view done, const CompileOptions& options)
      : done_(done), options_(options) {
    reach(0);
  }

  void reach(int percent) const {
    if (options_.progress) options_.progress(percent);
  }

  std::shared_ptr<const Executable> lowered(Graph graph, StepSignature signature) const {
    reach(40);
    cpu::Plan plan =
        cpu::lower(graph, {.rewrites = options_for(cpu::rewrites(options_.target), options_),
                           .keep_operators = options_.keep_operators,
                           .target = options_.target,
                           .threads = options_.threads,
                           .tuned = options_.tuned_kernels});
    log_programs(graph, plan, options_.logged_lines);
    log(LogLevel::info, "{} '{}' in {} ms: {} nodes, {} + {} calls; {}", done_, graph.name,
        milliseconds_since(start_), graph.node_count(), plan.update_begin,
        plan.calls.size() - plan.update_begin, print(plan.memory));
    log_host_calls(graph);
    reach(100);
    return std::make_shared<Executable>(std::move(graph), std::move(plan), std::move(signature));
  }

 private:
  const std::string_view done_;
  const CompileOptions& options_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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
  const Compilation compilation("compiled", options);
  verify(graph);

  compilation.reach(10);
  check_disabled(options.disabled_passes, passes_of_a_compilation());
  const std::vector<Pass> passes = pipeline(options.target.level, options.halves);
  run_passes(graph, passes, options_for(passes, options));
  verify(graph);
  return compilation.lowered(std::move(graph), std::move(signature));
}

std::shared_ptr<const Executable> compile_step(Graph graph, StepSignature signature,
                                               const CompileOptions& options) {
  const ErrorContext where("compiling '{}'", graph.name);
  const Compilation compilation("loaded", options);
  check_disabled(options.disabled_passes, passes_of_a_compilation());
  run_passes(graph, required_passes());
  verify(graph);
  return compilation.lowered(std::move(graph), std::move(signature));
}

}  // namespace tessera
