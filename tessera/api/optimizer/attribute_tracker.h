// Tells users of attributes that an optimiser got after it was first seen and that have no effect,
// each once: more often than not they are misspelt. Attributes that it had from the beginning are
// the user's own affair.
#pragma once

#include <set>
#include <string>

#include "tessera/api/optimizer/optimizer.h"
#include "tessera/base/log.h"

namespace tessera {

class AttributeTracker {
 public:
  // Messages come at this level.
  void look_at(const Optimizer& optimizer, LogLevel level);

 private:
  std::set<std::string, std::less<>> of_optimizers_, of_groups_;  // seen before
  bool first_ = true;
};

}  // namespace tessera
