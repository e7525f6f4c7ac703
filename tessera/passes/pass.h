// A pass changes a graph into one that means the same. The runner skips passes that are turned off,
// times the others, checks the graph after each and shows it where asked.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

struct Pass {
  std::string_view name;
  void (*run)(Graph&) = nullptr;
  std::string_view reason;  // why it stands where it stands
  bool required = false;    // what follows cannot do without it: it is never turned off
};

#ifdef NDEBUG
constexpr bool verify_passes_by_default = false;
#else
constexpr bool verify_passes_by_default = true;
#endif

struct PassOptions {
  std::vector<std::string> disabled;  // names; other names are left to others who can be turned off
  bool verify = verify_passes_by_default;
  std::function<void(const Pass&, const Graph&)> dump = {};  // called after each pass
};

struct PassReport {
  std::string name;
  int64_t microseconds = 0;
  int32_t nodes_before = 0, nodes_after = 0;
};

// One report for each pass that ran. Error where a required pass is turned off.
std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass> passes,
                                   const PassOptions& options = {});

}  // namespace tessera
