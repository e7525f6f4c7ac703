// The front door: from a captured step to something that runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/backend/cpu/target.h"
#include "tessera/ir/graph.h"
#include "tessera/passes/compute_in_single.h"
#include "tessera/passes/pass.h"
#include "tessera/runtime/executable.h"

namespace tessera {

struct CompileOptions {
  // By name, of passes_of_a_compilation(); to find one that changes numbers.
  std::vector<std::string> disabled_passes;
  // Check the graph after each pass. It is always checked before the first, and before the
  // rewrites.
  bool verify_passes = verify_passes_by_default;
  bool keep_operators = false;  // each is a call of its own, by which an error can name it
  HalfArithmetic halves = {};
  cpu::Target target = {};  // kernels chosen by timing are Executable::tuned_kernels()
  std::map<std::string, std::string> tuned_kernels = {};  // of an earlier executable, to repeat
  int threads = 1;                                        // those that kernels are timed with
  int64_t logged_lines = 0;  // of the graph, where it is logged: the last ones; 0 for all
  std::function<void(int percent)> progress = {};  // called with 0, then up to 100 when done
};

// Everything that may run over a graph, in order: the passes for any device (passes/pipeline.h),
// then the rewrites for this CPU (backend/cpu/lower/rewrites.h).
std::vector<Pass> passes_of_a_compilation();

// Error where the graph cannot be run, a disabled pass is none, or the signature is not the
// graph's; InternalError where it is not a graph.
std::shared_ptr<const Executable> compile(Graph graph, StepSignature signature,
                                          const CompileOptions& options = {});

// A step Graph: one that has been through the passes, as Executable::graph() has. It is verified
// and lowered; errors as above.
std::shared_ptr<const Executable> compile_step(Graph graph, StepSignature signature,
                                               const CompileOptions& options = {});

// A graph of which nothing else is known: see signature_of().
std::shared_ptr<const Executable> compile(Graph graph, const CompileOptions& options = {});

}  // namespace tessera
