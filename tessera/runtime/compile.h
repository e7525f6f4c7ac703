// The front door: from a captured step to something that runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/runtime/executable.h"

namespace tessera {

struct CompileOptions {
  std::vector<std::string> disabled_passes;  // by name; to find one that changes numbers
  bool keep_operators = false;  // each is a call of its own, by which an error can name it
  // No algorithm that rounds more than the plain one. Unset: as TESSERA_PRECISION says, else false.
  std::optional<bool> precise = {};
  // Time kernels where several apply, instead of following a fixed rule. Unset: where
  // TESSERA_AUTOTUNE is 1. What was chosen is Executable::tuned_kernels().
  std::optional<bool> autotune = {};
  std::map<std::string, std::string> tuned_kernels = {};  // of an earlier executable, to repeat
  std::function<void(int percent)> progress = {};         // called with 0, then up to 100 when done
};

// Error where the graph cannot be run, or the signature is not the graph's; InternalError where it
// is not a graph.
std::shared_ptr<const Executable> compile(Graph graph, StepSignature signature,
                                          const CompileOptions& options = {});

// A graph of which nothing else is known: see signature_of().
std::shared_ptr<const Executable> compile(Graph graph, const CompileOptions& options = {});

}  // namespace tessera
