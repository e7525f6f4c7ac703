// The front door: from a captured step to something that runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/backend/cpu/target.h"
#include "tessera/ir/graph.h"
#include "tessera/runtime/executable.h"

namespace tessera {

struct CompileOptions {
  std::vector<std::string> disabled_passes;  // by name; to find one that changes numbers
  bool keep_operators = false;  // each is a call of its own, by which an error can name it
  cpu::Target target = {};      // kernels chosen by timing are Executable::tuned_kernels()
  std::map<std::string, std::string> tuned_kernels = {};  // of an earlier executable, to repeat
  std::function<void(int percent)> progress = {};         // called with 0, then up to 100 when done
};

// Error where the graph cannot be run; InternalError where it is not a graph.
std::shared_ptr<const Executable> compile(Graph graph, const CompileOptions& options = {});

}  // namespace tessera
