// Checks what every graph promises: each value is made before it is used, once; ids are in range;
// sizes are not negative; no 64-bit types; micro-batch nodes use no update values; outputs are
// micro-batch values; states take values of their own type.
#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

struct BrokenPromise {
  enum class Place { value, input, state, node, output };

  std::string what;
  Place place = Place::value;
  int32_t index = 0;  // which input, state, node or output
};

// The first broken promise, nothing where all are kept.
std::optional<BrokenPromise> find_broken_promise(const Graph& graph);

// The same as an InternalError.
void verify_structure(const Graph& graph);

}  // namespace tessera
