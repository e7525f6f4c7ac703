#include "tessera/api/executor/find_program.h"

#include <torch/version.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/files/executable_cache.h"
#include "tessera/files/source_lines.h"
#include "tessera/ops/host_call.h"

namespace tessera {
namespace {

std::string in_words(const CacheResult& result) {
  return fmt::format("from the executable cache in {:.2f} s, compiling took {:.2f} s",
                     result.load_seconds, result.compile_seconds);
}

bool same_modes(const std::vector<StepOutput>& a, const std::vector<StepOutput>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const StepOutput& x, const StepOutput& y) {
                      return x.mode == y.mode && x.period == y.period;
                    });
}

// How the file's program differs from the one that was captured, as far as its signature tells.
std::string difference(const StepSignature& file, const StepSignature& captured) {
  const auto numbers = [](std::string_view option, int64_t in_file, int64_t here) {
    return fmt::format("it was compiled with {}({}), and the options say {}", option, in_file,
                       here);
  };
  if (file.device_iterations != captured.device_iterations) {
    return numbers("deviceIterations", file.device_iterations, captured.device_iterations);
  }
  if (file.gradient_accumulation != captured.gradient_accumulation) {
    return numbers("gradientAccumulation", file.gradient_accumulation,
                   captured.gradient_accumulation);
  }
  if (file.replicas != captured.replicas) {
    return numbers("replicationFactor", file.replicas, captured.replicas);
  }
  if (file.instances != captured.instances) {
    return fmt::format(
        "it was compiled for {} instances, not for {}; weights and the optimiser's state can "
        "be loaded without the program, by their state_dict()",
        file.instances, captured.instances);
  }
  if (file.inputs != captured.inputs) return "its inputs are others";
  if (file.outputs.size() == captured.outputs.size() &&
      !same_modes(file.outputs, captured.outputs)) {
    return "it was compiled with another outputMode";
  }
  if (file.anchors != captured.anchors) return "it has other anchored tensors";
  if (file.returned != captured.returned || file.structure != captured.structure) {
    return "its forward returns something else";
  }
  return "it was compiled from another model, optimiser or options";
}

// What the options ask of a compiler that already did its work.
void warn_of_compiled_options(const SavedModel& saved, const CompileOptions& now) {
  const CompileOptions& then = saved.file().options();
  const auto differs = [&](bool is_other, std::string_view what) {
    if (!is_other) return;
    log(LogLevel::warn,
        "{} is decided when a program is compiled: the program in '{}' goes on as it was compiled, "
        "whatever the options say now",
        what, saved.path());
  };
  differs(then.halves.rounding != now.halves.rounding, "Precision.enableStochasticRounding");
  differs(then.halves.matmul_partials != now.halves.matmul_partials ||
              then.halves.convolution_partials != now.halves.convolution_partials,
          "Precision.setPartialsType");
  differs(then.target.precise != now.target.precise, "Options.precise");
}

bool all_may_be_in_file(const Graph& graph) {
  const auto calls = host_calls(graph);
  return std::all_of(calls.begin(), calls.end(),
                     [](const HostCallCount& call) { return may_be_in_file(call.overload); });
}

// No file is trusted to call any operator of PyTorch's; but the model was captured here, and is the
// same.
std::shared_ptr<const Executable> compiled_again(const SavedModel& saved, Graph captured,
                                                 StepSignature signature,
                                                 const CompileOptions& now) {
  return compile(std::move(captured), std::move(signature), options_to_load(saved.file(), now));
}

}  // namespace

FoundProgram find_program(Graph graph, StepSignature signature, const SavedFacts& facts,
                          const Options& options, const std::function<void()>& poll) {
  const auto folder = options.executable_cache();
  const int64_t processes = options.Distributed().numProcesses();
  if (!folder) {
    if (processes > 1 && options.Distributed().processId() == 0) {  // once for all of them
      log(LogLevel::warn,
          "each of the {} processes compiles the model: with Options.enableExecutableCaching() one "
          "of them would do it for all",
          processes);
    }
    return {compile(std::move(graph), std::move(signature), facts.options)};
  }
  const ExecutableCache cache(*folder);
  check(processes == 1 || cache.is_writable(), ErrorKind::assertion,
        "enableExecutableCaching: '{}' must be a folder that can be written to, for {} processes "
        "share it",
        *folder, processes);
  const CacheResult result = cache.find_or_compile({.graph = std::move(graph),
                                                    .signature = std::move(signature),
                                                    .program = facts.program,
                                                    .options = facts.options,
                                                    .host = "PyTorch " TORCH_VERSION,
                                                    .poll = poll});
  return {result.executable, result.is_hit ? in_words(result) : ""};
}

FoundProgram take_program(const SavedModel& saved, Graph captured, StepSignature signature,
                          const SavedFacts& facts) {
  const ExecutableFile& file = saved.file();
  check(file.metadata(saved::program) == facts.program,
        "the program in '{}' is not the one of this model: {}; compile and save it again",
        saved.path(), difference(saved.signature(), signature));
  warn_of_compiled_options(saved, facts.options);
  if (!all_may_be_in_file(captured)) {
    return {compiled_again(saved, std::move(captured), std::move(signature), facts.options)};
  }
  Graph graph = saved.graph();
  move_lines(graph, parse_lines(file.metadata(saved::lines).value_or("")), facts.lines);
  graph.name = captured.name;
  return {read_from_file([&] {
            return load_executable(file, std::move(graph), std::move(signature), facts.options);
          }),
          fmt::format("from '{}'", saved.path())};
}

}  // namespace tessera
