// A pass changes a graph into one that means the same. One runner serves the passes for any device
// and the rewrites of a backend: it leaves out those that are turned off, times the others, checks
// the graph after each and shows it where asked.
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
  std::function<void(Graph&)> run;
  std::string_view reason;  // why it stands where it stands
  bool required = false;    // what follows cannot do without it: it is never turned off
};

#ifdef NDEBUG
constexpr bool verify_passes_by_default = false;
#else
constexpr bool verify_passes_by_default = true;
#endif

struct PassOptions {
  std::vector<std::string> disabled = {};                    // names
  bool verify = verify_passes_by_default;                    // the graph after each
  std::function<void(const Pass&, const Graph&)> dump = {};  // called after each
};

struct PassReport {
  std::string name;
  int64_t microseconds = 0;
  int32_t nodes_before = 0, nodes_after = 0;
};

// One report for each pass that ran, which is also a line of the log. Error as check_disabled says.
std::vector<PassReport> run_passes(Graph& graph, std::span<const Pass> passes,
                                   const PassOptions& options = {});

// The first pass of that name; Error, with the names there are, where there is none.
const Pass& find_pass(std::span<const Pass> passes, std::string_view name);

// Error, with the names there are, where one of `names` is none of the passes or a required one.
void check_disabled(std::span<const std::string> names, std::span<const Pass> passes);

}  // namespace tessera
