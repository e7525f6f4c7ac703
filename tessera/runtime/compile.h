// The front door: from a captured step to something that runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/runtime/executable.h"

namespace tessera {

struct CompileOptions {
  std::vector<std::string> disabled_passes;        // by name; to find one that changes numbers
  std::function<void(int percent)> progress = {};  // called with 0, then up to 100 when done
};

// Error where the graph cannot be run; InternalError where it is not a graph.
std::shared_ptr<const Executable> compile(Graph graph, const CompileOptions& options = {});

}  // namespace tessera
