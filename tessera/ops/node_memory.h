// What the operator table knows about the memory of a node's results, for ir/lifetimes.h.
#pragma once

#include "tessera/ir/lifetimes.h"
#include "tessera/ops/registry.h"

namespace tessera {

inline NodeMemory memory_of(const Node& node) {
  switch (op(node).kind) {
    case Kind::view:
      return NodeMemory::view;
    case Kind::source:
      return NodeMemory::constant;
    default:
      return NodeMemory::own;
  }
}

}  // namespace tessera
